package supportbundle

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Shapes in which programs print a secret that nobody has told of; V stands for it.
func TestShapesOfSecrets(t *testing.T) {
	const hex = "7f0c9d1e2b3a4f5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5"
	const body = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n"
	for _, c := range []struct{ shape, secret, want string }{
		// Options and variables.
		{"kubeadm join 10.0.0.1:6443 --token V --discovery", "abcdef.0123456789abcdef", "kubeadm join 10.0.0.1:6443 --token [redacted] --discovery"},
		{"token abcdef.0123456789abcdef expires", "abcdef.0123456789abcdef", "token [redacted] expires"},
		{"kubeadm join --certificate-key V --control-plane", hex, "kubeadm join --certificate-key [redacted] --control-plane"},
		{"ctl --password V --verbose", "hunter2!", "ctl --password [redacted] --verbose"},
		{"ctl --admin-password=V --verbose", "hunter2!", "ctl --admin-password=[redacted] --verbose"},
		{"ctl --api-key 'V' x", "two words", "ctl --api-key '[redacted]' x"},
		{"AWS_SECRET_ACCESS_KEY=V", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "AWS_SECRET_ACCESS_KEY=[redacted]"},
		{"export DB_PASSWORD='V'", "it is, long", "export DB_PASSWORD='[redacted]'"},
		{"ipmitool -I lanplus -H 10.0.0.5 -U admin -P V power status", "S3cret", "ipmitool -I lanplus -H 10.0.0.5 -U admin -P [redacted] power status"},
		{"curl -s -u admin:V https://10.0.0.5/redfish", "S3cret,Pw", "curl -s -u admin:[redacted] https://10.0.0.5/redfish"},
		{"curl --user 'admin:V' https://10.0.0.5/", "S3cret", "curl --user 'admin:[redacted]' https://10.0.0.5/"},
		{"sshpass -p V ssh root@10.0.0.9", "S3cret", "sshpass -p [redacted] ssh root@10.0.0.9"},
		{"sshpass -pV ssh root@10.0.0.9", "S3cret", "sshpass -p[redacted] ssh root@10.0.0.9"},
		{"dsn=host=db user=x pwd=V sslmode=on", "S3cret", "dsn=host=db user=x pwd=[redacted] sslmode=on"},
		{"network={ssid=\"lab\" psk=\"V\"}", "correct horse", "network={ssid=\"lab\" psk=\"[redacted]\"}"},

		// Configurations, names in every spelling.
		{"secretKey: V", "abcdef/+=", "secretKey: [redacted]"},
		{"secret_key=V", "abcdef", "secret_key=[redacted]"},
		{"secret_key = V", "abcdef", "secret_key = [redacted]"},
		{`{"apiKey":"V","id":1}`, "k-1234", `{"apiKey":"[redacted]","id":1}`},
		{"client_secret: V", "abc~def", "client_secret: [redacted]"},
		{"adminPassword: V", "S3cret", "adminPassword: [redacted]"},
		{"passphrase: V", "four words of it", "passphrase: [redacted]"},
		{`password: "V"`, `S3cret,Pw99tail`, `password: "[redacted]"`},
		{`password: "V"`, `S3\"cret tail`, `password: "[redacted]"`},
		{`password: 'V' # of the BMC`, `S3cret; tail`, `password: '[redacted]' # of the BMC`},
		{"password: V", "S3cret,Pw99 tail", "password: [redacted]"},
		{`msg="login {\"password\":\"V\",\"user\":\"x\"}"`, "S3cret,Pw99tail", `msg="login {\"password\":\"[redacted]\",\"user\":\"x\"}"`},
		{`{address: 10.0.0.5, password: V, username: admin}`, "S3cret", `{address: 10.0.0.5, password: [redacted], username: admin}`},
		{`{"auths":{"registry.example":{"auth":"V"}}}`, "YWRtaW46aHVudGVyMg==", `{"auths":{"registry.example":{"auth":"[redacted]"}}}`},
		{"echo root:V | chpasswd", "S3cret", "echo root:[redacted] | chpasswd"},
		{"echo 'root:V' | sudo chpasswd", "S3cret", "echo 'root:[redacted]' | sudo chpasswd"},
		{"chpasswd:\n  expire: false\n  list: |\n    root:V\n    ubuntu:V\nruncmd: x\n", "S3cret,Pw", "chpasswd:\n  expire: false\n  list: |\n    root:[redacted]\n    ubuntu:[redacted]\nruncmd: x\n"},
		{"<Password>V</Password>", "S3cret & more", "<Password>[redacted]</Password>"},
		{`<user name="admin" password="V"/>`, "S3cret", `<user name="admin" password="[redacted]"/>`},
		{"('username', 'admin'), ('password', 'V')", "S3cret, tail", "('username', 'admin'), ('password', '[redacted]')"},
		{"{'password': b'V', 'x': 1}", `S3cr\xc3\xa9t`, "{'password': b'[redacted]', 'x': 1}"},
		{"driver_info={'ipmi_username': 'admin', 'ipmi_password': 'V'}", "S3cret", "driver_info={'ipmi_username': 'admin', 'ipmi_password': '[redacted]'}"},
		{"redfish://admin:V@10.0.0.5/redfish/v1", "S3c@ret", "redfish://admin:[redacted]@10.0.0.5/redfish/v1"},

		// Hashes and keys.
		{"root:V:19000:0", "$1$abcdefgh$ABCDEFGHIJKLMNOPQRSTU.", "root:[redacted]:19000:0"},
		{"admin:V", "$apr1$abcdefgh$ABCDEFGHIJKLMNOPQRSTU.", "admin:[redacted]"},
		{"hash V", "$argon2id$v=19$m=65536,t=3,p=4$c2FsdHNhbHQ$RdescudvJCsgt3ub+b4dWRWJTmaaJObG", "hash [redacted]"},
		{"hash V", "$y$j9T$abcdefghijkl$ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef", "hash [redacted]"},
		{"V", "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQVYBF\n=abcd\n-----END PGP PRIVATE KEY BLOCK-----", "[redacted]"},
		{"V\nnext", strings.Repeat(body, 3) + "QyNTUxOQ==\n-----END OPENSSH PRIVATE KEY-----", "[redacted]\nnext"},
		{"key V", "AKIAIOSFODNN7EXAMPLE", "key [redacted]"},
		{"remote V", "ghp_abcdefghijklmnopqrstuvwxyzABCDEFGHIJ", "remote [redacted]"},
	} {
		got := string((&Redactor{}).Redact([]byte(strings.ReplaceAll(c.shape, "V", c.secret))))
		assert.Equal(t, c.want, got)
	}
}

// Known secrets in the ways in which programs escape them.
func TestFormsOfKnownSecrets(t *testing.T) {
	for secret, forms := range map[string][]string{
		`S3&"c'<t>`: {
			`S3&"c'<t>`, `S3\u0026\"c'\u003ct\u003e`, `S3&\"c'<t>`, `S3&amp;&#34;c&#39;&lt;t&gt;`, `S3&amp;&quot;c&#x27;&lt;t&gt;`, `S3&amp;&quot;c&apos;&lt;t&gt;`,
			`S3&"c'\''<t>`, `S3&"c'"'"'<t>`, `S3\&\"c\'\<t\>`, `S3&"c\'<t>`, `S3&"c''<t>`, `S3%26%22c%27%3Ct%3E`, `S3%26%22c%27%3ct%3e`,
			`S3&\\\"c'<t>`, base64.StdEncoding.EncodeToString([]byte(`S3&"c'<t>` + "\n")),
		},
		"Schlüssel ß": {
			"Schlüssel ß", `Schl\u00fcssel \u00df`, `Schl\u00FCssel \u00DF`, `Schl\xc3\xbcssel \xc3\x9f`, `Schl\xfcssel \xdf`, `Schl\303\274ssel \303\237`,
			"Schl%C3%BCssel%20%C3%9F", "Schl%C3%BCssel+%C3%9F", "Schl%c3%bcssel%20%c3%9f",
		},
		`back\slash/and`: {`back\slash/and`, `back\\slash/and`, `back\\slash\/and`, `back%5Cslash%2Fand`},
	} {
		r := &Redactor{}
		r.Add(secret)
		for _, form := range forms {
			assert.Equal(t, "x=1 [redacted] y", string(r.Redact([]byte("x=1 "+form+" y"))), form)
		}
	}

	r := &Redactor{}
	r.AddNamed("ironic.credentials", "an-ironic-password-of-any-length\nfirstlight:a-hash-of-no-known-form\n")
	r.AddNamed("artifacts.keys", "access-key-of-the-store\nsecret-key-of-the-store\n")
	r.AddNamed("clouds.yaml", "clouds:\n  x: {auth: {username: admin, password: in-a-yaml-file}}\n")
	r.AddNamed("0123.json", `{"bmc":"10.0.0.5","username":"admin","password":"Present1OfAnyBMC","nextPassword":"Next2OfAnyBMC456","formerPassword":"Former3OfAnyBMC4"}`)
	assert.Equal(t, "admin at 10.0.0.5", string(r.Redact([]byte("admin at 10.0.0.5"))))
	for _, secret := range []string{"Present1OfAnyBMC", "Next2OfAnyBMC456", "Former3OfAnyBMC4", "an-ironic-password-of-any-length", "a-hash-of-no-known-form", "access-key-of-the-store", "secret-key-of-the-store", "in-a-yaml-file"} {
		assert.Equal(t, "it said [redacted] there", string(r.Redact([]byte("it said "+secret+" there"))))
	}
}

// A short password that is a word too is not told by the marks that stand for it everywhere.
func TestShortSecretsDoNotGiveThemselvesAway(t *testing.T) {
	r := &Redactor{}
	for _, short := range []string{"root", "12345", "x-1!"} {
		r.AddNamed("password", short)
	}
	for text, want := range map[string]string{
		"rootfs / overlay root:root 0755":   "rootfs / overlay root:root 0755",
		"port 12345, pid 123456":            "port 12345, pid 123456",
		"user root, password: root":         "user root, password: [redacted]",
		"ipmitool -U root -P 12345 power":   "ipmitool -U root -P [redacted] power",
		"with x-1! it works, not with ax-1": "with [redacted] it works, not with ax-1",
	} {
		assert.Equal(t, want, string(r.Redact([]byte(text))))
	}
}

// Ordinary logs stay as they are.
func TestOrdinaryLogsStay(t *testing.T) {
	r := &Redactor{}
	r.AddNamed("password", "correct horse battery staple")
	const text = `Nov 26 12:00:01 appliance firstlightd[412]: level=INFO msg="stage is ready" stage=ironic-ready took=1.2s
time=2026-11-26T12:00:02Z level=WARN msg="node blocked" node=node-1 reason="BMC 10.0.0.5 refuses the password of user \"admin\""
I1126 12:00:03.123456       1 trace.go:236] Trace[1]: "Get" accept:application/json,audit-id:0b8c,client:172.22.0.1,resource:secrets (26-Nov-2026)
kube-apiserver --authorization-mode=Node,RBAC --service-account-key-file=/etc/kubernetes/pki/sa.pub --tls-private-key-file=/etc/kubernetes/pki/apiserver.key --token-auth-file=
kube-apiserver --kubelet-client-key=/etc/kubernetes/pki/apiserver-kubelet-client.key --requestheader-client-ca-file=/x/y.crt
containerd: level=info msg="CreateContainer within sandbox" name="&ContainerMetadata{Name:manager,Attempt:0,}"
  - name: ironic-credentials
    secret: {secretName: ironic-credentials}
    secret:
      secretName: artifacts-tls
    tokenExpirationSeconds: 3607
    imagePullSecrets: []
    automountServiceAccountToken: false
    credentialsName: node-1-bmc-secret
    passwordAuthentication: no
      token: null
sshd[1]: Failed password for invalid user x from 10.0.0.9 port 5022 ssh2
sshd[1]: Accepted publickey for root from 172.22.0.9 port 40222 ssh2: ED25519 SHA256:Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9v
firmware: EFI secure boot enabled; keyboard: none; monkey=1 donkey: 2 turkey: 3
dnsmasq: offer 172.22.0.10 52:54:00:12:34:56 lease=1h token-ring none
mount: /dev/sda6 on /var/lib/firstlight type ext4 (rw,noatime)
PATH=/usr/bin:/bin HOME=/root LANG=C.UTF-8 COMPASS=north BYPASS=1
GET /v1/nodes/1be26c0b-03f2-4d2e-ae87-c02d7f33c123 HTTP/1.1" 200 - 0.013
image: sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 firstlight.internal/pause:3.10.2
Warning  NoSSHKey  1s  bpa-operator  Secret default/login is not there; credentialsSecret names it
`
	assert.Equal(t, text, string(r.Redact([]byte(text))))
}
