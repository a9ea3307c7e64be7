package netprobe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ProbeImage asks for the first bytes of an image at an http(s) address, as the deploy ramdisk
// will, and returns how many bytes it takes on a disk; 0 if the server does not say. format
// is raw or qcow2. The error is a sentence for people.
func ProbeImage(ctx context.Context, url, format string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, fmt.Errorf("its address cannot be read: %w", err)
	}

	request.Header.Set("Range", fmt.Sprintf("bytes=0-%d", headerSize-1))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil}}
	response, err := client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("its server does not answer: %w", errors.Unwrap(err))
	}
	defer response.Body.Close()

	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusPartialContent {
		return 0, fmt.Errorf("its server says %s", response.Status)
	}

	header := make([]byte, headerSize)
	n, err := io.ReadFull(response.Body, header)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, fmt.Errorf("it is empty or cannot be read: %w", err)
	}

	length := response.ContentLength
	if _, total, ok := strings.Cut(response.Header.Get("Content-Range"), "/"); ok {
		length, _ = strconv.ParseInt(total, 10, 64)
	}

	return virtualSize(header[:n], format, max(length, 0))
}

// headerSize is as much of qcow2's header as is looked at.
const headerSize = 32

// virtualSize is the size of the disk that an image makes: of qcow2 it stands in the header (QEMU's
// docs/interop/qcow2.txt), of a raw image it is the file's.
func virtualSize(header []byte, format string, length int64) (int64, error) {
	isQCOW2 := bytes.HasPrefix(header, []byte("QFI\xfb"))
	switch {
	case format == "qcow2" && !isQCOW2:
		return 0, errors.New("it is no qcow2")
	case format != "qcow2" && isQCOW2:
		return 0, fmt.Errorf("it is qcow2, and said to be %s", format)
	case !isQCOW2:
		return length, nil
	case len(header) < headerSize:
		return 0, errors.New("it is truncated")
	case binary.BigEndian.Uint64(header[8:]) != 0:
		return 0, errors.New("it needs another file (a backing file) and cannot be installed alone")
	}
	return int64(binary.BigEndian.Uint64(header[24:]) & (1<<62 - 1)), nil
}
