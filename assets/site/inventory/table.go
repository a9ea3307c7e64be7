package inventory

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Columns of a table, by what they are, lower case and without blanks and punctuation. NetBox's and MAAS' own are among
// them.
var columns = map[string][]string{
	"name":     {"name", "hostname", "host", "node", "server", "fqdn"},
	"macs":     {"macs", "mac", "macaddress", "macaddresses"},
	"bootMAC":  {"bootmac", "bootmacaddress", "pxemac", "pxemacaddress"},
	"bmc":      {"bmc", "bmcaddress", "bmcip", "ipmi", "ipmiaddress", "ipmiip", "redfish", "oob", "oobip", "outofbandip", "poweraddress", "idrac", "ilo"},
	"username": {"username", "user", "bmcuser", "bmcusername", "ipmiuser", "ipmiusername", "poweruser"},
	"password": {"password", "pass", "bmcpassword", "ipmipassword", "powerpass"},
	"rack":     {"rack"},
	"serial":   {"serial", "serialnumber"},
	"role":     {"role", "devicerole"},

	"device": {"device"}, // in a list of interfaces, whose names are other ones
}

// labelColumns are the columns that become labels of the node's BareMetalHost.
var labelColumns = []string{"rack", "serial", "role"}

// separators are between several MACs in one field.
const separators = ",; \t\n"

// readTable reads a table with a header. Fields are separated as in its first line: by commas, semicolons or tabs.
func (r *reader) readTable(data []byte) error {
	head, _, _ := bytes.Cut(data, []byte("\n"))
	in := csv.NewReader(bytes.NewReader(data))
	in.TrimLeadingSpace, in.Comment = true, '#'
	in.FieldsPerRecord = -1
	for _, other := range ";\t" {
		if bytes.ContainsRune(head, other) && !bytes.Contains(head, []byte(",")) {
			in.Comma = other
		}
	}
	rows, err := in.ReadAll()
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return errors.New("it is empty")
	}

	at := r.findColumns(rows[0])
	if _, isOfInterfaces := at["device"]; isOfInterfaces {
		at["name"] = at["device"]
	}
	if _, ok := at["name"]; !ok {
		return fmt.Errorf("its first line names no column %s; write such a header", strings.Join(columns["name"], ", "))
	}
	for _, row := range rows[1:] {
		r.addRow(at, row)
	}
	return nil
}

// findColumns finds what is known, and notes what is not.
func (r *reader) findColumns(head []string) map[string]int {
	at := map[string]int{}
	var unknown []string
	for i, title := range head {
		known := false
		for what, names := range columns {
			if slices.Contains(names, plain(title)) {
				known = true
				if _, twice := at[what]; !twice {
					at[what] = i
				}
			}
		}
		if !known {
			unknown = append(unknown, strings.TrimSpace(title))
		}
	}
	if len(unknown) > 0 {
		r.note("not carried over: %s", strings.Join(unknown, ", "))
	}
	return at
}

// plain is a title without what people write differently.
func plain(title string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "_", "", "-", "", ".", "", "(", "", ")", "").Replace(strings.TrimSpace(title)))
}

func (r *reader) addRow(at map[string]int, row []string) {
	field := func(what string) string {
		if i, ok := at[what]; ok && i < len(row) {
			return strings.TrimSpace(row[i])
		}
		return ""
	}
	s := r.get(field("name"))
	if s == nil {
		if strings.Join(row, "") != "" {
			r.note("a row without a name is left out: %.60s", strings.Join(row, ","))
		}
		return
	}

	for mac := range strings.FieldsFuncSeq(field("macs"), func(c rune) bool { return strings.ContainsRune(separators, c) }) {
		s.addMAC(mac)
	}
	if mac := field("bootMAC"); mac != "" {
		s.bootMAC = normalizeMAC(mac)
	}
	s.setBMC(field("bmc"))
	if user := field("username"); user != "" {
		s.username = user
	}
	if password := field("password"); password != "" {
		s.password = password
	}
	for _, key := range labelColumns {
		s.setLabel(key, field(key))
	}
}
