package main

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/attestation"
	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/daemon/engine/remote"
	"firstlight.dev/firstlight/image/measured"
)

// maxAttestation bounds what an appliance answers, in bytes.
const maxAttestation = 8 << 20

// attestFlags is what the command line of `firstlight attest` says.
type attestFlags struct {
	host, file, nonce, key string
	output                 commandline.Format
}

func newAttestCommand() *cobra.Command {
	var f attestFlags
	cmd := &cobra.Command{
		Use:   "attest [IMAGE]",
		Short: "Check what an appliance has booted by its TPM, and whether that is an image",
		Long: `Ask an appliance what it has booted, and check its answer: the TPM's signature, the nonce, and the firmware's log of what
was measured. With IMAGE (.img or .img.zst) it says whether the appliance booted that image, or which measurement differs.

The TPM's key is believed at the first attestation, and from then on no other one is, until firstlight logout. --check
FILE checks an answer of firstlightd attest instead, "-" from standard input: --nonce is the one it was asked with, and
--key the fingerprint that the key must have.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			image := ""
			if len(args) == 1 {
				image = args[0]
			}
			return attest(cmd, image, f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.file, "check", "", "check this answer instead of asking an appliance")
	flags.StringVar(&f.nonce, "nonce", "", "with --check: the nonce of the question, as hexadecimal digits")
	flags.StringVar(&f.key, "key", "", "fingerprint of the TPM's key, as an attestation prints it")
	bindHost(cmd, &f.host)
	f.output.Bind(cmd)
	cmd.MarkFlagsRequiredTogether("check", "nonce")
	cmd.MarkFlagsMutuallyExclusive("check", "host")
	return cmd
}

// attestReport is what a check found, for -o json.
type attestReport struct {
	Key     string            `json:"key"`
	Known   bool              `json:"known"` // the key was compared with one that is known
	PCRs    map[string]string `json:"pcrs"`
	Boot    measured.Boot     `json:"boot"`
	Image   *measured.Image   `json:"image,omitempty"`
	Differs []string          `json:"differs"` // from the image
}

func attest(cmd *cobra.Command, image string, f attestFlags) error {
	a, known, err := f.readAttestation(cmd)
	if err != nil {
		return err
	}
	report := attestReport{Key: a.Fingerprint(), Known: known, PCRs: map[string]string{}, Differs: []string{}}
	for i, pcr := range attestation.PCRs {
		report.PCRs[fmt.Sprint(pcr)] = hex.EncodeToString(a.PCRs[i])
	}
	if report.Boot, err = measured.Read(a); err != nil {
		return fmt.Errorf("check attestation: %w", err)
	}
	if image != "" {
		i, err := measured.ReadImage(cmd.Context(), image)
		if err != nil {
			return err
		}
		report.Image, report.Differs = &i, append(report.Differs, i.Compare(report.Boot)...)
	}

	if f.output == commandline.JSON {
		err = commandline.WriteJSON(cmd.OutOrStdout(), report)
	} else {
		err = report.print(cmd.OutOrStdout(), image)
	}
	if err == nil && len(report.Differs) > 0 {
		err = fmt.Errorf("it has not booted %s", image)
	}
	return err
}

// readAttestation gives an answer that was checked, and whether its key was known before.
func (f attestFlags) readAttestation(cmd *cobra.Command) (a attestation.Attestation, known bool, err error) {
	if f.file == "" {
		return f.askAppliance(cmd)
	}

	nonce, err := hex.DecodeString(f.nonce)
	if err != nil || len(nonce) < attestation.MinNonce {
		return a, false, commandline.NewUsageError(fmt.Errorf("--nonce %q: give the nonce that firstlightd attest was asked "+
			"with, %d bytes or more as hexadecimal digits", f.nonce, attestation.MinNonce))
	}
	in := cmd.InOrStdin()
	if f.file != "-" {
		file, err := os.Open(f.file)
		if err != nil {
			return a, false, fmt.Errorf("read attestation: %w", err)
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxAttestation+1))
	if err != nil {
		return a, false, fmt.Errorf("read attestation: %w", err)
	}
	a, err = parseAttestation(text, nonce, f.key)
	return a, f.key != "", err
}

// askAppliance asks with a nonce of its own. The key of the first answer that holds is stored.
func (f attestFlags) askAppliance(cmd *cobra.Command) (a attestation.Attestation, known bool, err error) {
	store, c, err := connect(cmd.Context(), f.host)
	if err != nil {
		return a, false, err
	}
	defer c.Close()

	key, err := store.AttestationKey(c.Appliance)
	if err != nil {
		return a, false, err
	}
	if f.key != "" {
		key = f.key
	}

	nonce := make([]byte, attestation.MaxNonce)
	rand.Read(nonce) // never fails (crypto/rand)
	answer := &boundedBuffer{}
	streams := remote.Streams{Out: answer, Err: cmd.ErrOrStderr()}
	if err := c.Run(cmd.Context(), streams, "attest", "--nonce", hex.EncodeToString(nonce)); err != nil {
		return a, false, err
	}
	a, err = parseAttestation(answer.Bytes(), nonce, key)
	if errors.Is(err, attestation.ErrKey) && f.key == "" {
		return a, false, fmt.Errorf("%w: another machine has this address, or its TPM was replaced; if so, run firstlight "+
			"logout %s and log in again", err, c.Host)
	}
	if err == nil && key == "" {
		err = store.SaveAttestationKey(c.Appliance, a.Fingerprint())
	}
	return a, key != "", err
}

// boundedBuffer refuses an answer that is too long.
type boundedBuffer struct{ bytes.Buffer }

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxAttestation {
		return 0, errors.New("the answer is longer than an attestation is")
	}
	return b.Buffer.Write(p)
}

func parseAttestation(text, nonce []byte, key string) (attestation.Attestation, error) {
	var a attestation.Attestation
	if len(text) > maxAttestation {
		return a, errors.New("read attestation: it is longer than an attestation is")
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("read attestation: %w; it is what firstlightd attest prints", err)
	}
	if err := a.Check(nonce, key); err != nil {
		return a, fmt.Errorf("check attestation: %w", err)
	}
	return a, nil
}

func (r attestReport) print(w io.Writer, image string) error {
	var out bytes.Buffer
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&out, "%-13s %s\n", name, fmt.Sprintf(format, args...))
	}

	known := "believed: nothing vouches for it; compare it with the machine's own, or give it by --key"
	if r.Known {
		known = "the one that is known"
	}
	line("signed by", "%s, %s", r.Key, known)
	line("event log", "%s, as the TPM has measured", commandline.Amount(r.Boot.Events, "event"))
	line("Secure Boot", "%s", map[bool]string{true: "on", false: "off"}[r.Boot.SecureBoot])
	seen := map[measured.Measurement]bool{} // GRUB may read a file twice
	for _, m := range r.Boot.Programs {
		line("program", "%s %s", m.SHA256, m.Name)
	}
	for _, m := range r.Boot.Files {
		if !seen[m] {
			line("file", "%s %s", m.SHA256, m.Name)
		}
		seen[m] = true
	}
	for _, text := range r.Boot.CommandLines {
		line("command line", "%q", text)
		line("root hash", "%s", measured.RootHash(text))
	}
	for _, text := range r.Differs {
		line("DIFFERS", "%s", text)
	}
	if r.Image != nil && len(r.Differs) == 0 {
		line("boots", "%s: version %s, root %s", image, r.Image.Version, r.Image.Root)
	}
	line("not proven", "that the key is in a TPM: no certificate of its maker is checked")
	line("not proven", "what the firmware is: PCR 0 is %s; compare it with an earlier answer", r.PCRs["0"])
	line("not proven", "what was done since the kernel started")
	_, err := out.WriteTo(w)
	return err
}
