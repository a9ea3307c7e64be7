package site

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestFamiliesOfImages are told by words of their names, not by any part of them where that refuses an image.
func TestFamiliesOfImages(t *testing.T) {
	for name, want := range map[string]string{
		"debian-13":                              "",
		"metalos-12.qcow2":                       "",
		"Talos-openstack-amd64.raw":              "talos",
		"openstack_talos1.11.raw":                "talos",
		"metal-os-12.qcow2":                      "",
		"FedoraCoreOS-42.qcow2":                  "fedoracoreos",
		"fedora-coreos-42-openstack.qcow2":       "fedoracoreos",
		"rhcos-4.17-openstack.qcow2":             "rhcos",
		"our-flatcar.raw":                        "flatcar",
		"hardcoreos-debian.raw":                  "",
		"old-coreos.raw":                         "",
		"flatcar_production_openstack_image.img": "flatcar",
	} {
		assert.Equal(t, want, OS{Image: name}.family().word, name)
		assert.Equal(t, want, OS{URL: URL("https://images.example.org/talos/" + name + "?name=talos")}.family().word, name)
	}
}
