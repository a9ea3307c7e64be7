package site

// Gap says what a valid node still lacks before it can be installed, in one sentence that says what to add; "" if
// nothing.
func (n Node) Gap() string {
	if len(n.MACs) == 0 && n.BootMAC == "" {
		return "no MAC: what boots on the provisioning network cannot be told to be this server, so it is not installed; " +
			"add macs, of any of its NICs"
	}
	return ""
}
