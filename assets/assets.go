// Package assets is the contract between the builder, which runs on a workstation,
// and the daemon, which runs on the appliance: the version, names and paths both
// sides must agree on. It imports neither of them.
package assets

// Version is the version that is worked towards, and the tag of our container images. What was built from which
// commit says Revision.Version.
const Version = "0.1.0"

// ImageDomain prefixes every container image built by this project. The .internal
// top-level domain is reserved for private use, so no such name resolves anywhere.
const ImageDomain = "firstlight.internal"

// RegistryPort is where the appliance serves container images, by TCP.
const RegistryPort = 5000

// InstallerImage is the stick's installer of clusters: a shell, and a place for the daemon's own binary, which
// the appliance's root has anyway and of which the installer is a command. On nodes it is a shell.
const InstallerImage = ImageDomain + "/installer:v" + Version
