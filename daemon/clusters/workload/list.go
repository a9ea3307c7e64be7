package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// list has each of the first objects of a resource read, and reports whether there are more than most.
func list[T any](
	ctx context.Context, request *rest.Request, resource string, most int, read func(*T),
) (more bool, err error) {
	body, err := request.Resource(resource).Param("limit", strconv.Itoa(most)).
		SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
	if err != nil {
		return false, err
	}
	defer body.Close()

	if more, err = decodeList(body, most, read); err != nil {
		return false, fmt.Errorf("list %s: %w", resource, err)
	}
	return more, nil
}

// decodeList reads a list object by object. All of it at once would let a cluster fill the appliance's memory: three
// bytes of text, such as an empty object, are a kilobyte when they are read.
func decodeList[T any](body io.Reader, most int, read func(*T)) (more bool, err error) {
	in := &objectReader{from: body, left: maxObject}
	from := json.NewDecoder(in)
	if err := expect(from, json.Delim('{')); err != nil {
		return false, err
	}

	for from.More() {
		in.left = maxObject
		key, err := from.Token()
		if err != nil {
			return false, err
		}
		switch key {
		case "metadata":
			var list metav1.ListMeta
			if err := from.Decode(&list); err != nil {
				return false, err
			}
			more = more || list.Continue != ""
		case "items":
			if isWhole, err := decodeItems(from, in, most, read); err != nil || !isWhole {
				return true, err
			}
		default:
			var other json.RawMessage
			if err := from.Decode(&other); err != nil {
				return false, err
			}
		}
	}
	return more, expect(from, json.Delim('}'))
}

// decodeItems reads the objects of a list; not all of them if there are more than most.
func decodeItems[T any](from *json.Decoder, in *objectReader, most int, read func(*T)) (isWhole bool, err error) {
	begin, err := from.Token()
	switch {
	case err != nil:
		return false, err
	case begin == nil:
		return true, nil // there are none
	case begin != json.Delim('['):
		return false, errors.New("its items are no list")
	}

	for n := 0; from.More(); n++ {
		if n == most {
			return false, nil
		}
		in.left = maxObject
		var object T
		if err := from.Decode(&object); err != nil {
			return false, err
		}
		read(&object)
	}
	return true, expect(from, json.Delim(']'))
}

// decodeObject reads one object.
func decodeObject[T any](body io.Reader) (*T, error) {
	object := new(T)
	return object, json.NewDecoder(&objectReader{from: body, left: maxObject}).Decode(object)
}

func expect(from *json.Decoder, want json.Delim) error {
	token, err := from.Token()
	if err == nil && token != want {
		err = fmt.Errorf("there is %v where %v belongs", token, want)
	}
	return err
}

// objectReader ends with an error after so many bytes, so that no object is longer.
type objectReader struct {
	from io.Reader
	left int
}

func (r *objectReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, fmt.Errorf("one object is longer than %d KiB", maxObject>>10)
	}
	n, err := r.from.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}
