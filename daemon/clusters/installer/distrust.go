package installer

// Earlier versions told every node to trust the appliance's authority wherever TLS is spoken. Now containerd alone
// does, for the appliance's registry.
const (
	systemAuthority    = "/usr/local/share/ca-certificates/firstlight.crt"
	systemCertificates = "/etc/ssl/certs" // as update-ca-certificates(8) of Debian makes them
)

// distrust takes the authority $1 from what is trusted according to the directory $2: from the bundle of all
// certificates, and the links by name and digest. The file goes last, so that an interrupted run is repeated. It needs
// no update-ca-certificates, which calls openssl for each of the other hundred and fifty.
const distrust = `
test -e "$1" || exit 0
bundle=$2/ca-certificates.crt
if test -e "$bundle"; then
	awk '
		FILENAME == ARGV[1] { authority = authority $0 "\n"; next }
		/^-----BEGIN / { inside = 1; certificate = "" }
		!inside { print; next }
		{ certificate = certificate $0 "\n" }
		/^-----END / { if (certificate != authority) printf "%s", certificate; inside = 0 }
		END { if (inside) printf "%s", certificate }
	' "$1" "$bundle" >"$bundle.new"
	chmod --reference "$bundle" "$bundle.new"
	sync "$bundle.new"
	mv "$bundle.new" "$bundle"
	find "$2" -type l \( -lname "$1" -o -lname "$(basename "$1" .crt).pem" \) -delete
	sync "$2"
fi
rm "$1"
sync "$(dirname "$1")"
`
