package site

import (
	"fmt"
	"reflect"
	"strings"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// Field is one row of the reference: a key of the document with its path.
type Field struct {
	Path    string // nodes[].bmc.address
	Type    string
	Default string
	Meaning string
}

// Fields lists every key of the document in its order, parents before their children.
func Fields() []Field { return listFields(reflect.TypeFor[Site](), "") }

func listFields(t reflect.Type, prefix string) []Field {
	var all []Field
	for i := range t.NumField() {
		f := t.Field(i)
		path := prefix + f.Tag.Get("yaml")
		row := Field{path, describeType(f.Type, f.Tag), f.Tag.Get("default"), f.Tag.Get("doc")}
		if f.Tag.Get("required") == "true" {
			row.Default = "required"
		}

		all = append(all, row)
		child := f.Type
		if child.Kind() == reflect.Slice {
			child, path = child.Elem(), path+"[]"
		}

		if child.Kind() == reflect.Pointer {
			child = child.Elem()
		}

		if child.Kind() == reflect.Struct && !yamldoc.IsText(child) {
			all = append(all, listFields(child, path+".")...)
		}
	}
	return all
}

// describeType says in a word or two what a value of t looks like.
func describeType(t reflect.Type, tag reflect.StructTag) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return describeType(t.Elem(), tag)
	case t.Kind() == reflect.Slice:
		return "list of " + strings.TrimPrefix(describeType(t.Elem(), tag), "one of ")
	case t.Kind() == reflect.Map:
		return "map of text"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int:
		return fmt.Sprintf("number, %s to %s", tag.Get("min"), tag.Get("max"))
	case tag.Get("enum") != "":
		return "one of " + strings.ReplaceAll(tag.Get("enum"), "|", ", ")
	case t.Kind() == reflect.String && t.Name() == "string":
		return "text"
	case t.Kind() == reflect.Struct && !yamldoc.IsText(t):
		return "map"
	}
	return map[string]string{
		"Name": "name", "MAC": "MAC", "Interface": "NIC", "Range": "address range", "Duration": "duration", "Memory": "amount of memory", "Amount": "amount", "Certificates": "PEM certificates",
		"Host": "host name or address", "URL": "URL", "SHA256": "SHA-256", "SSHKey": "SSH public key", "SigningKey": "public half of a signing key", "GitURL": "URL", "CommitKey": "public key", "BMCAddress": "BMC address",
		"Consent": "true, false or fingerprint", "CertificateCheck": "one of pin, ca, none", "LinkAddress": "dhcp, none or address/length", "Secret": "secret", "PrivateKey": "secret", "KnownHost": "host key", "Addr": "address", "Prefix": "CIDR",
	}[t.Name()]
}
