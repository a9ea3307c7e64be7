package daemon

import (
	"errors"
	"io/fs"

	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/assets/stick"
)

// UpdateKeys are the keys whose signatures an image must have that this appliance is updated to, as the site has them
// now; none if any image is taken. It needs no daemon. A site that cannot be read is an error: then no one knows.
func UpdateKeys() (signature.Keys, error) { return NewCopier().updateKeys() }

func (c *Copier) updateKeys() (signature.Keys, error) {
	record, err := stick.Load[stick.StorageInfo](c.path(stick.StorageInfoFile))
	switch {
	case errors.Is(err, fs.ErrNotExist): // not started from a stick
	case err != nil:
		return nil, err
	case !record.Site: // without it there seems to be no document, or that of the image
		return nil, errors.New("the stick's SITE, where site.yaml is, was not mounted when this machine started; restart, " +
			"and if that does not help, write SITE again: firstlight flash --site")
	}

	_, s, err := c.site()
	if err != nil {
		return nil, err
	}
	return signature.NewKeys(s.Updates.Keys), nil
}
