package bmc

import (
	"fmt"
	"path/filepath"
)

// inventoryFile is what the controller has as its inventory of the server, FRU 0.
const inventoryFile = "fru.bin"

// inventoryConfig is the inventory of a server with a serial number, and the simulator's command that reads it from
// dir; both are empty without one.
func inventoryConfig(serial, dir string) (content, command string) {
	if serial == "" {
		return "", ""
	}

	content = string(inventory("QEMU", "Lab", serial))
	return content, fmt.Sprintf("mc_add_fru_data 0x20 0 %d file 0 %q\n", len(content), filepath.Join(dir, inventoryFile))
}

// inventory is a product information area behind a common header (Platform Management FRU Information Storage
// Definition 1.0, 8 and 12). Texts have 2 to 63 bytes.
func inventory(manufacturer, name, serial string) []byte {
	const (
		version  = 1
		english  = 0
		text     = 3 << 6 // 8-bit ASCII; the length follows in the lower bits
		noField  = 0
		endOfAll = 0xc1
		unit     = 8 // lengths and offsets count these
	)
	product := []byte{version, 0, english}
	for _, field := range []string{manufacturer, name, noText, noText, serial, noText, noText} {
		if field == noText {
			product = append(product, noField)
			continue
		}
		product = append(append(product, byte(text|len(field))), field...)
	}

	product = append(product, endOfAll)
	for len(product)%unit != unit-1 {
		product = append(product, 0)
	}
	product[1] = byte((len(product) + 1) / unit)

	header := []byte{version, 0, 0, 0, 1, 0, 0} // the product's area alone, one unit from the start
	return append(append(header, checksum(header)), append(product, checksum(product))...)
}

// noText is a field that is not there.
const noText = ""
