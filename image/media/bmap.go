package media

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

// BlockSize is the unit of block maps, in bytes.
const BlockSize = 4096

// rangeBlocks is how long one range gets at most: what is hashed, and read back, at once,
// and how closely a difference is located.
const rangeBlocks = 256

// Bmap is a block map of bmaptool's format 2.0: which blocks of an image matter, and
// their digests.
type Bmap struct {
	ImageSize int64 // bytes
	BlockSize int64 // bytes
	Ranges    []Range
}

// Range is a run of blocks, both ends included, and its sha256 in hexadecimal digits.
type Range struct {
	First, Last int64
	SHA256      string
}

// Extent gives the bytes of a range; the last block of an image may be short.
func (b Bmap) Extent(r Range) Extent {
	return Extent{r.First * b.BlockSize, min((r.Last+1)*b.BlockSize, b.ImageSize)}
}

// MappedBlocks is how many blocks the ranges have.
func (b Bmap) MappedBlocks() int64 {
	n := int64(0)
	for _, r := range b.Ranges {
		n += r.Last - r.First + 1
	}
	return n
}

// mapUsed cuts what Used lists into ranges, without their digests. No range crosses a
// multiple of rangeBlocks.
func mapUsed(f *os.File, size int64) (Bmap, error) {
	used, err := UsedExtents(f, size)
	if err != nil {
		return Bmap{}, err
	}

	b := Bmap{ImageSize: size, BlockSize: BlockSize}
	next := int64(0)
	for _, e := range used {
		end := (e.End + BlockSize - 1) / BlockSize
		for first := max(e.Start/BlockSize, next); first < end; first = next {
			next = min((first/rangeBlocks+1)*rangeBlocks, end)
			b.Ranges = append(b.Ranges, Range{First: first, Last: next - 1})
		}
	}

	return b, nil
}

// MakeBmap reads an image and maps what Used lists.
func MakeBmap(ctx context.Context, f *os.File, size int64) (Bmap, error) {
	b, err := mapUsed(f, size)
	if err != nil {
		return Bmap{}, err
	}

	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range b.Ranges {
		g.Go(func() error {
			r := &b.Ranges[i]
			e := b.Extent(*r)
			sum, err := digestReader(ctx, io.NewSectionReader(f, e.Start, e.End-e.Start))
			r.SHA256 = sum
			return err
		})
	}

	return b, g.Wait()
}

var noSum = strings.Repeat("0", 2*sha256.Size)

// Encode gives the XML text with its own checksum, which is taken with zeros in its place.
func (b Bmap) Encode() []byte {
	var w bytes.Buffer
	line := func(name string, value any) { fmt.Fprintf(&w, "    <%s> %v </%s>\n", name, value, name) }
	w.WriteString("<?xml version=\"1.0\" ?>\n<!-- Which blocks of the image must be written, for bmaptool and firstlight flash. -->\n<bmap version=\"2.0\">\n")
	line("ImageSize", b.ImageSize)
	line("BlockSize", b.BlockSize)
	line("BlocksCount", (b.ImageSize+b.BlockSize-1)/b.BlockSize)
	line("MappedBlocksCount", b.MappedBlocks())
	line("ChecksumType", "sha256")
	line("BmapFileChecksum", noSum)
	w.WriteString("    <BlockMap>\n")
	for _, r := range b.Ranges {
		blocks := strconv.FormatInt(r.First, 10)
		if r.Last > r.First {
			blocks += "-" + strconv.FormatInt(r.Last, 10)
		}
		fmt.Fprintf(&w, "        <Range chksum=\"%s\"> %s </Range>\n", r.SHA256, blocks)
	}

	w.WriteString("    </BlockMap>\n</bmap>\n")
	sum := sha256.Sum256(w.Bytes())
	return bytes.Replace(w.Bytes(), []byte(noSum), []byte(hex.EncodeToString(sum[:])), 1)
}

type bmapXML struct {
	XMLName  xml.Name `xml:"bmap"`
	Version  string   `xml:"version,attr"`
	Size     string   `xml:"ImageSize"`
	Block    string   `xml:"BlockSize"`
	Count    string   `xml:"BlocksCount"`
	Mapped   string   `xml:"MappedBlocksCount"`
	SumType  string   `xml:"ChecksumType"`
	FileSum  string   `xml:"BmapFileChecksum"`
	BlockMap struct {
		Ranges []struct {
			Sum  string `xml:"chksum,attr"`
			Text string `xml:",chardata"`
		} `xml:"Range"`
	} `xml:"BlockMap"`
}

// ParseBmap reads a block map of format 2.0 with sha256 sums and checks its own checksum,
// counts and order.
func ParseBmap(text []byte) (Bmap, error) {
	var x bmapXML
	if err := xml.Unmarshal(text, &x); err != nil {
		return Bmap{}, fmt.Errorf("read block map: %w", err)
	}

	sum := strings.TrimSpace(x.FileSum)
	if x.Version != "2.0" || strings.TrimSpace(x.SumType) != "sha256" || len(sum) != len(noSum) {
		return Bmap{}, fmt.Errorf(
			"read block map: version %q with %q sums; want 2.0 with sha256", x.Version, strings.TrimSpace(x.SumType),
		)
	}
	if got := sha256.Sum256(bytes.Replace(text, []byte(sum), []byte(noSum), 1)); hex.EncodeToString(got[:]) != sum {
		return Bmap{}, errors.New("read block map: its own checksum is wrong")
	}

	var b Bmap
	var count, mapped int64
	for _, field := range []struct {
		name, text string
		to         *int64
	}{{"ImageSize", x.Size, &b.ImageSize}, {"BlockSize", x.Block, &b.BlockSize}, {"BlocksCount", x.Count, &count}, {"MappedBlocksCount", x.Mapped, &mapped}} {
		n, err := strconv.ParseInt(strings.TrimSpace(field.text), 10, 64)
		if err != nil || n <= 0 {
			return Bmap{}, fmt.Errorf(
				"read block map: %s %q is not a positive number", field.name, strings.TrimSpace(field.text),
			)
		}
		*field.to = n
	}

	if b.BlockSize > 1<<30 || count != (b.ImageSize-1)/b.BlockSize+1 {
		return Bmap{}, fmt.Errorf(
			"read block map: %d blocks of %d bytes are not an image of %d bytes", count, b.BlockSize, b.ImageSize,
		)
	}

	next := int64(0)
	for _, r := range x.BlockMap.Ranges {
		first, last, isRun := strings.Cut(strings.TrimSpace(r.Text), "-")
		if !isRun {
			last = first
		}

		one := Range{SHA256: r.Sum}
		var err1, err2 error
		one.First, err1 = strconv.ParseInt(first, 10, 64)
		one.Last, err2 = strconv.ParseInt(last, 10, 64)
		if err1 != nil || err2 != nil || one.First < next || one.Last < one.First || one.Last >= count {
			return Bmap{}, fmt.Errorf(
				"read block map: range %q is not in order within %d blocks", strings.TrimSpace(r.Text), count,
			)
		}
		if raw, err := hex.DecodeString(r.Sum); err != nil || len(raw) != sha256.Size {
			return Bmap{}, fmt.Errorf("read block map: range %q has no sha256", strings.TrimSpace(r.Text))
		}

		next = one.Last + 1
		b.Ranges = append(b.Ranges, one)
	}

	if b.MappedBlocks() != mapped {
		return Bmap{}, fmt.Errorf(
			"read block map: it says %d blocks are mapped, its ranges have %d", mapped, b.MappedBlocks(),
		)
	}

	return b, nil
}

// Check reads the mapped ranges of an image and returns those whose digest differs.
func (b Bmap) Check(ctx context.Context, r io.ReaderAt) ([]Range, error) {
	differ := make([]bool, len(b.Ranges))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, one := range b.Ranges {
		g.Go(func() error {
			e := b.Extent(one)
			got, err := digestReader(ctx, io.NewSectionReader(r, e.Start, e.End-e.Start))
			differ[i] = got != one.SHA256
			return err
		})
	}

	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("check block map: %w", err)
	}

	var out []Range
	for i, bad := range differ {
		if bad {
			out = append(out, b.Ranges[i])
		}
	}

	return out, nil
}
