package daemon

import "firstlight.dev/firstlight/assets/signature"

// UpdateKeys are the keys whose signatures an image must have that this appliance is updated to, as the site has them
// now; none if any image is taken. It needs no daemon. A site that cannot be read is an error: then no one knows.
func UpdateKeys() (signature.Keys, error) { return NewCopier().updateKeys() }

func (c *Copier) updateKeys() (signature.Keys, error) {
	_, s, err := c.site()
	if err != nil {
		return nil, err
	}
	return signature.NewKeys(s.Updates.Keys), nil
}
