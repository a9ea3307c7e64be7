package main

import (
	"fmt"
	"os"

	"github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/backend/meta"
)

// attributeStore keeps what the module knows of an object in the file's own attributes, without the ends of
// its parts, which are for requests that want one part of an object. Nobody asks for those here, and
// with some hundred parts they are more than the 4 KiB that ext4 has for all attributes of a file: the
// upload could never be completed, and "no space left" was the answer.
type attributeStore struct{ meta.XattrMeta }

// uploadAttribute is how posix (v1.8.0) calls what it knows of the upload that an object was made by.
const uploadAttribute = "mp-metadata"

// StoreAttribute implements meta.MetadataStorer.
func (a attributeStore) StoreAttribute(f *os.File, bucket, object, attribute string, value []byte) error {
	if attribute == uploadAttribute {
		u, err := backend.UnmarshalMpUploadMetadata(value, false)
		if err != nil {
			return fmt.Errorf("read %s: %w", attribute, err)
		}
		// Who completes an upload twice is told by its ID.
		if value, err = backend.MarshalMpUploadMetadata(backend.MpUploadMetadata{UploadID: u.UploadID}, false); err != nil {
			return fmt.Errorf("write %s: %w", attribute, err)
		}
	}
	return a.XattrMeta.StoreAttribute(f, bucket, object, attribute, value)
}
