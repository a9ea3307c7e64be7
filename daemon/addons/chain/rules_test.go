package chain

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/knftables"

	"firstlight.dev/firstlight/assets/goldentest"
)

// TestRulesBecomeWordsOfNft reads each rule, and writes it for the kernel and for people.
func TestRulesBecomeWordsOfNft(t *testing.T) {
	for _, c := range []struct{ text, want, again string }{
		{"{action: drop}", "counter name c drop", ""},
		{"{action: accept}", "counter name c accept", ""},
		{"{protocol: udp, action: drop}", "ip protocol udp counter name c drop", ""},
		{"{protocol: icmp, action: accept}", "ip protocol icmp counter name c accept", ""},
		{"{protocol: udp, port: 9000, action: drop}", "udp dport 9000 counter name c drop", ""},
		{"{protocol: tcp, port: 9000-9010, action: drop}", "tcp dport 9000-9010 counter name c drop", ""},
		{
			`{protocol: tcp, port: "80", action: accept}`,
			"tcp dport 80 counter name c accept", "{protocol: tcp, port: 80, action: accept}",
		},
		{
			"{from: 198.18.0.0/24, to: 198.19.0.10, action: drop}",
			"ip saddr 198.18.0.0/24 ip daddr 198.19.0.10 counter name c drop", "",
		},
		{
			"{to: 198.19.0.10/32, action: drop}", "ip daddr 198.19.0.10 counter name c drop",
			"{to: 198.19.0.10, action: drop}",
		},
		{"{from: 0.0.0.0/0, action: drop}", "ip saddr 0.0.0.0/0 counter name c drop", ""},
		{
			"{protocol: udp, port: 9000, limit: 100/second, action: drop}",
			"udp dport 9000 limit rate over 100/second burst 10 packets counter name c drop", "",
		},
		{
			"{limit: 7/minute, action: accept}", "limit rate 7/minute burst 5 packets counter name c accept", "",
		},
		{
			"{action: drop, limit: 2000/hour}",
			"limit rate over 2000/hour burst 200 packets counter name c drop", "{limit: 2000/hour, action: drop}",
		},
	} {
		rules, err := ParseRules("- " + c.text)
		require.NoError(t, err, c.text)
		require.Len(t, rules, 1)
		assert.Equal(t, c.want, rules[0].render("c"), c.text)
		if c.again == "" {
			c.again = c.text
		}
		assert.Equal(t, c.again, rules[0].String())
		again, err := ParseRules("- " + rules[0].String())
		require.NoError(t, err, c.text)
		assert.Equal(t, rules, again)
	}
}

func TestNoRulesLetEverythingPass(t *testing.T) {
	for _, text := range []string{"", "[]", "[]\n", "# none yet\n", "null"} {
		rules, err := ParseRules(text)
		require.NoError(t, err, text)
		assert.Empty(t, rules)
	}
}

func TestWrongRulesAreRefusedWithASentence(t *testing.T) {
	const good = "- {action: accept}\n"
	for text, want := range map[string]string{
		"rules":                           `the rules are no list; write one such as - {protocol: udp, port: 9000, limit: 100/second, action: drop}, or [] to let everything pass`,
		"{action: drop}":                  "the rules are no list",
		"- {":                             "the rules cannot be read: ",
		"- {port: 1, port: 2}":            `key "port" already set`,
		good + "-":                        "rule 2: action is missing; write action: accept or action: drop",
		good + "- drop":                   "rule 2: it cannot be read: ",
		good + "- {prot: udp}":            `rule 2: it cannot be read: json: unknown field "prot"; a rule has protocol, from, to, port, limit and action`,
		"- {protocol: udq, action: drop}": `rule 1: protocol "udq" is not known; write udp, tcp or icmp`,
		"- {protocol: udp}":               "rule 1: action is missing",
		"- {action: reject}":              `rule 1: action "reject" is not known; write accept or drop`,
		"- {action: drop; flush ruleset}": `rule 1: action "drop; flush ruleset" is not known; write accept or drop`,
		"- {port: 9000, action: drop}":    "rule 1: a port belongs to a protocol; write protocol: udp or protocol: tcp",
		"- {protocol: icmp, port: 8, action: drop}":          "rule 1: a port belongs to a protocol",
		"- {protocol: udp, port: 0, action: drop}":           `rule 1: port "0" is no port; write a number from 1 to 65535, or a range such as 9000-9010`,
		"- {protocol: udp, port: 65536, action: drop}":       `rule 1: port "65536" is no port`,
		"- {protocol: udp, port: 10-9, action: drop}":        `rule 1: port "10-9" is no port`,
		"- {protocol: udp, port: domain, action: drop}":      `rule 1: port "domain" is no port`,
		"- {protocol: udp, port: '1; accept', action: drop}": `rule 1: port "1; accept" is no port`,
		"- {from: 10.0.0, action: drop}":                     `rule 1: from "10.0.0" is no IPv4 address or network; write one such as 198.18.0.10 or 198.18.0.0/24`,
		"- {to: 'fd00::1', action: drop}":                    `rule 1: to "fd00::1" is no IPv4 address or network`,
		"- {to: 198.18.0.10/24, action: drop}":               `rule 1: to "198.18.0.10/24" is an address within a network; write 198.18.0.0/24 or 198.18.0.10`,
		"- {limit: 100, action: drop}":                       "rule 1: it cannot be read: ",
		"- {limit: 100/day, action: drop}":                   `rule 1: limit "100/day" is none; write 1 to 10000000 packets per second, minute or hour, such as 100/second`,
		"- {limit: 0/second, action: drop}":                  `rule 1: limit "0/second" is none`,
		"- {limit: 20000000/second, action: drop}":           `rule 1: limit "20000000/second" is none`,
		strings.Repeat("- {action: accept}\n", maxRules+1):   "there are 257 rules; write 256 at most",
		"- {from: 198.18.0.10, from: 198.18.0.11}":           "already set",
		"- {limit: 100/second/second, action: drop}":         "is none",
		"- {protocol: UDP, action: drop}":                    `protocol "UDP" is not known`,
		"- {protocol: tcp, port: [80, 443], action: drop}":   "rule 1: it cannot be read: ",
		"- {action: drop}\n- {action: drop}\n- {action: no}": "rule 3: ",
		"- {protocol: udp, port: 99999999999, action: drop}": "rule 1: ",
		"- {protocol: udp, port: 9000.5, action: accept}":    "rule 1: ",
		"- {from: '198.18.0.0/24; accept', action: drop}":    "is no IPv4 address or network",
		"- {limit: '1/second; counter', action: drop}":       "is none",
		"- {protocol: \"udp\\naccept\", action: drop}":       "is not known",
	} {
		rules, err := ParseRules(text)
		if assert.ErrorContains(t, err, want, text) {
			assert.NotContains(t, err.Error(), "\n")
			assert.Nil(t, rules)
		}
	}
}

// FuzzParseRules: no text makes more of nft's words than those of its rules.
func FuzzParseRules(f *testing.F) {
	f.Add(example)
	f.Add("- {from: 198.18.0.0/24, to: 198.19.0.10, action: accept}")
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := ParseRules(text)
		if err != nil {
			return
		}
		for _, r := range rules {
			assert.NotContains(t, r.render("c"), ";")
			assert.NotContains(t, r.render("c"), "\n")
			again, err := ParseRules("- " + r.String())
			require.NoError(t, err)
			assert.Equal(t, []Rule{r}, again)
		}
	})
}

// TestTableOfRules shows what nft is given.
func TestTableOfRules(t *testing.T) {
	rules, err := ParseRules("- {protocol: icmp, limit: 10/second, action: accept}\n- {protocol: icmp, action: drop}\n" + example)
	require.NoError(t, err)
	nft := knftables.NewFake(knftables.IPv4Family, TableName)
	tx := nft.NewTransaction()
	(&Table{nft: nft, in: "chain-in", out: "chain-out"}).write(tx, rules)
	require.NoError(t, nft.Run(t.Context(), tx))
	goldentest.Check(t, "testdata/rules.nft", tx.String())
}

func TestCountsAreDivided(t *testing.T) {
	rules, err := ParseRules("[{action: accept, limit: 1/second}, {action: drop, protocol: udp}]")
	require.NoError(t, err)
	passed, dropped := Counts{
		Rules: []Count{{1, 92}, {20, 1840}}, Passed: Count{300, 27600}, Fragments: Count{4000, 6}, Stray: Count{50000, 7},
	}.divide(rules)
	assert.Equal(t, Count{301, 27692}, passed)
	assert.Equal(t, Count{54020, 1853}, dropped)
}
