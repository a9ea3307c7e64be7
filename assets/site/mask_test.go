package site

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const written = `# The rack in room 4. Owner: ann.
name: rack-7   # as on its door
nodeDefaults:
  bmc: {username: admin, password: "change me"} # old password: hunter2
nodes:
- name: node-1
  macs: ["52:54:00:00:00:01"]
  bmc:
    address: ipmi://10.0.0.1
    username: admin
    password: 'it''s me'
# - name: node-9
#   bmc: {address: "ipmi://10.0.0.9", password: "of a node that went"}
- {name: node-2, macs: ["52:54:00:00:00:02"], os: {password: plain-3, username: über}}
- {name: node-3, macs: ["52:54:00:00:00:03"], os: {username: über, password: &p plain-4}}
`

// TestMaskHidesSecretsInTheirPlaces: lines, order and comments stay, so that what names a line names the same one.
func TestMaskHidesSecretsInTheirPlaces(t *testing.T) {
	masked, err := Mask([]byte(written))
	require.NoError(t, err)
	for _, secret := range []string{"change me", "hunter2", "it''s me", "plain-3", "plain-4", "of a node that went"} {
		assert.NotContains(t, string(masked), secret)
	}
	assert.Equal(t, strings.NewReplacer(
		`"change me"`, `"[redacted]"`, `hunter2`, `[redacted]`, `'it''s me'`, `"[redacted]"`, `plain-3`, `"[redacted]"`,
		`plain-4`, `"[redacted]"`, `"of a node that went"}`, `[redacted]`,
	).Replace(written), string(masked))
	assert.Equal(t, written, string(Unmask(masked, []byte(written))), "nothing was changed: it is the very text")
}

func TestMaskWritesADocumentAgainWhereItMust(t *testing.T) {
	for _, text := range []string{
		"name: a\nnodeDefaults:\n  bmc:\n    password: |2-\n        one\n      # line\n", // that line would become a comment
		"name: a\nnodeDefaults:\n  bmc:\n    password: |+\n\n",
		"name: a\nnodeDefaults: {bmc: {password: !!str plain}}\n",
		"name: a\nnodeDefaults: {bmc: {password: \"one\\\n   line\"}}\n",
		"name: a\nnodeDefaults: {bmc: {password: [p@ss, {a: w0rd}]}}\n",
	} {
		masked, err := Mask([]byte(text))
		require.NoError(t, err)
		for _, secret := range []string{"line", "plain", "p@ss", "w0rd"} {
			assert.NotContains(t, string(masked), secret, text)
		}
		assert.Contains(t, string(masked), "[redacted]")
		assert.True(t, isAlike([]byte(text), Unmask(masked, []byte(text))), "%s\n%s", masked, Unmask(masked, []byte(text)))
	}

	for text, want := range map[string]string{"": "", "# password: a\n": "# password: [redacted]\n"} {
		masked, err := Mask([]byte(text))
		require.NoError(t, err)
		assert.Equal(t, want, string(masked))
	}
	_, err := Mask([]byte("a: [1\npassword: x"))
	assert.Error(t, err, "it is no YAML: nothing of it is shown")
}

// TestMaskHidesSecretsThatAreWrittenInOddWays: an alias shows what it stands for, and what follows a document is none.
func TestMaskHidesSecretsThatAreWrittenInOddWays(t *testing.T) {
	for text, want := range map[string]string{
		"nodeDefaults: {bmc: {username: &u admin, password: *u}}\n": "nodeDefaults: {bmc: {username: &u admin, password: \"[redacted]\"}}\n",
		"nodeDefaults: {bmc: {password: &p a}, os: {password: *p}}\n": "nodeDefaults: {bmc: {password: &p \"[redacted]\"}, " +
			"os: {password: \"[redacted]\"}}\n",
		"name: &k password\n*k : hunter2\n":                                              "name: &k password\n*k : \"[redacted]\"\n",
		"name: a # oldPassword: hunter2\n":                                               "name: a # oldPassword: [redacted]\n",
		"name: a # bmc_password=hunter2\n":                                               "name: a # bmc_password=[redacted]\n",
		"name: a # the old password was hunter2\n":                                       "name: a # the old password was [redacted]\n",
		"bmc:\n  privateKey: |  \n\n    a\n      b\n\n    c\n\n  # of room 4\nname: a\n": "bmc:\n  privateKey: \"[redacted]\"\n\n  # of room 4\nname: a\n",
		"bmc:\n  password: >-\n    a\n    # b\nname: a":                                  "bmc:\n  password: \"[redacted]\"\nname: a",
		"bmc:\r\n  password: |\r\n    a\r\nname: a\r\n":                                  "bmc:\r\n  password: \"[redacted]\"\r\nname: a\r\n",
		"name: {a: \"b\"#password: hunter2\n}\n":                                         "name: {a: \"b\"#password: [redacted]\n}\n",
		"name: \"a#password: b\"\nbmc: {password: c}\n":                                  "name: \"a#password: b\"\nbmc: {password: \"[redacted]\"}\n",
	} {
		masked, err := Mask([]byte(text))
		require.NoError(t, err, text)
		assert.Equal(t, want, string(masked))
		assert.Equal(t, text, string(Unmask(masked, []byte(text))))
	}

	for _, second := range []string{"---\n", "...\n"} {
		for _, rest := range []string{"nodeDefaults: {bmc: {password: hunter2}}\n", "password: [hunter2\n"} {
			masked, err := Mask([]byte("name: a\n" + second + rest))
			require.NoError(t, err)
			assert.Equal(t, "name: a\n", string(masked))
		}
	}

	_, secrets, err := Redact([]byte("bmc: {password: &p one}\nos: {password: *p}\n"))
	require.NoError(t, err)
	assert.Equal(t, []string{"one", "one"}, secrets)
}

// TestUnmaskFollowsNames: a secret stays with what it is of, wherever that is put, and goes to nothing else.
func TestUnmaskFollowsNames(t *testing.T) {
	const two = "nodes:\n- {name: a, macs: [\"52:54:00:00:00:01\"], os: {password: one}}\n" +
		"- {name: b, macs: [\"52:54:00:00:00:02\"], os: {password: \"t,w:o\"}}\n"
	for _, c := range []struct{ name, original, edited, want string }{
		{"another order", two,
			"nodes:\n- {name: b, os: {password: \"[redacted]\"}}\n- {name: a, os: {password: \"[redacted]\"}}\n",
			"nodes:\n- {name: b, os: {password: \"t,w:o\"}}\n- {name: a, os: {password: one}}\n"},
		{"other quotes", two,
			"nodes:\n- name: b\n  os:\n    password: '[redacted]'\n",
			"nodes:\n- name: b\n  os:\n    password: \"t,w:o\"\n"},
		{"a new one is typed", two,
			"nodes:\n- {name: a, os: {password: new}}\n- {name: b, os: {password: \"[redacted]\"}}\n",
			"nodes:\n- {name: a, os: {password: new}}\n- {name: b, os: {password: \"t,w:o\"}}\n"},
		{"another name has none", two,
			"nodes:\n- {name: c, os: {password: \"[redacted]\"}}\n",
			"nodes:\n- {name: c, os: {password: \"[redacted]\"}}\n"},
		{"another key has none", two,
			"nodes:\n- {name: a, bmc: {password: \"[redacted]\"}}\n",
			"nodes:\n- {name: a, bmc: {password: \"[redacted]\"}}\n"},
		{"of a list by user", "discover: {credentials: [{username: x, password: one}, {username: y, password: two}, {username: y, password: three}]}\n",
			"discover: {credentials: [{username: y, password: \"[redacted]\"}, {username: y, password: \"[redacted]\"}, {username: x, password: \"[redacted]\"}]}\n",
			"discover: {credentials: [{username: y, password: two}, {username: y, password: three}, {username: x, password: one}]}\n"},
		{"as it must be quoted there", "nodeDefaults:\n  bmc:\n    password: a, b\n",
			"nodeDefaults: {bmc: {password: \"[redacted]\"}}\n",
			"nodeDefaults: {bmc: {password: \"a, b\"}}\n"},
		{"not where an alias shows it", two,
			"nodes:\n- {name: a, os: {password: &p \"[redacted]\"}}\nname: *p\n",
			"nodes:\n- {name: a, os: {password: &p \"[redacted]\"}}\nname: *p\n"},
		{"an alias of what is typed", "nodeDefaults: {bmc: {password: &p one}, os: {password: *p}}\n",
			"nodeDefaults: {bmc: {password: &p new}, os: {password: \"[redacted]\"}}\n",
			"nodeDefaults: {bmc: {password: &p new}, os: {password: \"one\"}}\n"},
		{"not with another address", "nodes:\n- {name: a, bmc: {address: ipmi://10.0.0.1, password: one}}\n" +
			"- {name: b, bmc: {address: ipmi://10.0.0.2, password: two}}\n",
			"nodes:\n- {name: a, bmc: {address: ipmi://10.0.0.9, password: \"[redacted]\"}}\n" +
				"- {name: b, bmc: {password: \"[redacted]\", address: ipmi://10.0.0.2}}\n",
			"nodes:\n- {name: a, bmc: {address: ipmi://10.0.0.9, password: \"[redacted]\"}}\n" +
				"- {name: b, bmc: {password: two, address: ipmi://10.0.0.2}}\n"},
		{"not with an address by an alias", "nodes: [{name: a, bmc: {address: ipmi://10.0.0.1, password: one}}]\n",
			"x: &x ipmi://10.0.0.9\nnodes: [{name: a, bmc: {address: *x, password: \"[redacted]\"}}]\n",
			"x: &x ipmi://10.0.0.9\nnodes: [{name: a, bmc: {address: *x, password: \"[redacted]\"}}]\n"},
		{"not with a second address", "nodes: [{name: a, bmc: {address: ipmi://10.0.0.1, password: one}}]\n",
			"nodes: [{name: a, bmc: {address: ipmi://10.0.0.1, Address: ipmi://10.0.0.9, password: \"[redacted]\"}}]\n",
			"nodes: [{name: a, bmc: {address: ipmi://10.0.0.1, Address: ipmi://10.0.0.9, password: \"[redacted]\"}}]\n"},
		{"not to another issuer", "appliance: {oidc: {issuer: \"https://a\", clientSecret: one}}\n",
			"appliance: {oidc: {issuer: \"https://b\", clientSecret: \"[redacted]\"}}\n",
			"appliance: {oidc: {issuer: \"https://b\", clientSecret: \"[redacted]\"}}\n"},
		{"not to another store", "awayCopy: {store: {endpoint: \"https://a\", secretKey: one}}\n",
			"awayCopy: {store: {endpoint: \"https://b\", secretKey: \"[redacted]\"}}\n",
			"awayCopy: {store: {endpoint: \"https://b\", secretKey: \"[redacted]\"}}\n"},
		{"not to another image, which gets its hash", "nodeDefaults: {os: {url: \"http://a/i\", password: one}}\n",
			"nodeDefaults: {os: {url: \"http://b/i\", password: \"[redacted]\"}}\n",
			"nodeDefaults: {os: {url: \"http://b/i\", password: \"[redacted]\"}}\n"},
		{"no YAML", two, "nodes: [\npassword: \"[redacted]\"", "nodes: [\npassword: \"[redacted]\""},
		{"nothing is hidden", two, "name: \"a\"\n", "name: \"a\"\n"},
	} {
		assert.Equal(t, c.want, string(Unmask([]byte(c.edited), []byte(c.original))), c.name)
	}
}

// TestOnlyCommentsGetTheirSecretsBack: what a value has is shown, and goes to nodes and to programs.
func TestOnlyCommentsGetTheirSecretsBack(t *testing.T) {
	const original = "# password: hunter2\nname: a\n"
	for _, edited := range []string{
		"name: |\n  a\n  # password: [redacted]\n",
		"name: |2\n     a\n  # password: [redacted]\n",
		"a:\n- >-\n # password: [redacted]\n",
		"name: \"a\n  # password: [redacted]\"\n",
		"name: 'a # password: [redacted]'\n",
		"name: a\n  b#password: [redacted]\n",
		"{\"# password: [redacted]\": a}\n",
	} {
		assert.NotContains(t, string(Unmask([]byte(edited), []byte(original))), "hunter2", edited)
	}

	// A comment after such a value has its own back, and what looks like one elsewhere is no secret.
	const both = "name: |\n  # password: seen\n\n  #   more\n# password: hunter2\na: '# password: seen' # oldPassword: t0k3n\nb: x#password=seen # password is 0ther\n"
	masked, err := Mask([]byte(both))
	require.NoError(t, err)
	assert.Equal(t, strings.NewReplacer("hunter2", "[redacted]", "t0k3n", "[redacted]", "0ther", "[redacted]").Replace(both), string(masked))
	assert.Equal(t, both, string(Unmask(masked, []byte(both))))

	for _, text := range []string{"a: |\n# password: hunter2\n", "a: |\n\n\n# password: hunter2\n", "a: |\n  #\n # password: hunter2\nb: c\n"} {
		masked, err := Mask([]byte(text))
		require.NoError(t, err, text)
		assert.NotContains(t, string(masked), "hunter2", text)
	}
}

func FuzzMask(f *testing.F) {
	f.Add(written)
	f.Add("a: &x {password: b}\nc: *x\n")
	f.Add("password: \"a\\\"b\" # password: c\n")
	f.Add("a:\n  password: |+\n    b\n   \t\n    # c\n\n  # d\n")
	f.Fuzz(func(t *testing.T, text string) {
		masked, err := Mask([]byte(text))
		if err != nil {
			return
		}
		clean, _, err := Redact([]byte(text))
		require.NoError(t, err)
		if !isAlike(masked, clean) {
			t.Fatalf("%q is shown as %q, and not as %q", text, masked, clean)
		}
		Unmask(masked, []byte(text))
	})
}

// TestAnAddressThatChangedIsNamed: the line of the secret is not the one that was edited.
func TestAnAddressThatChangedIsNamed(t *testing.T) {
	_, problems := Load("site.yaml", Unmask(
		[]byte("nodeDefaults: {os: {url: \"http://b/i\", password: \"[redacted]\"}}\n"),
		[]byte("nodeDefaults: {os: {url: \"http://a/i\", password: one}}\n"),
	))
	assert.ErrorContains(t, problems.Err(), "also for a BMC, a store or an image whose address you change")
}
