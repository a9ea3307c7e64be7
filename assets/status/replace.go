package status

// Replace is what `firstlightd replace` is answered.
type Replace struct {
	Node string `json:"node"`
	Host string `json:"host"` // UID of the BareMetalHost that goes
	New  string `json:"new"`  // what site.yaml has of the new server instead, for people

	Word  string `json:"word"`  // confirms all of the above, and nothing else; see NewWord
	Begun bool   `json:"begun"` // false: it was not confirmed
}

// NewWord is the word by which a replacement is confirmed: it is about the host and the new server.
func (r Replace) NewWord() string { return newWord(r.Host, r.New) }
