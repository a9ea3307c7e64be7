package secureboot

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
)

// GRUB checks the files that it reads by OpenPGP signatures (GRUB manual, "Using digital signatures in GRUB"), for which
// RFC 4880 has the format. Of that this is the little that GRUB reads: a bare public key, and signatures of version 4.

// Suffix of the signature's file, as GRUB looks for it.
const Suffix = ".sig"

const (
	publicExponent = 65537

	tagSignature = 0x88 | 1 // old format, two bytes of length: RFC 4880, section 4.2.1
	tagPublicKey = 0x98 | 1

	pgpRSA    = 1
	pgpSHA256 = 8

	// All fields of a signature by a key of 2048 bits have one length.
	hashedSize    = 6  // of subpackets: the time
	unhashedSize  = 10 // the issuer, where GRUB looks for it
	signatureHead = 3 + 6 + hashedSize + 2 + unhashedSize + 2
	signatureSize = signatureHead + 2 + keyBits/8
	issuerAt      = 19
)

// PublicKeySize is the length of every public key for GRUB, in bytes.
const PublicKeySize = 3 + 6 + 2 + keyBits/8 + 2 + 3

// GRUBKey is a public key as GRUB reads it, PublicKeySize bytes. Its time is always the same one, so that a key has one
// identity.
func GRUBKey(key *rsa.PublicKey) []byte {
	b := []byte{tagPublicKey, 0, 0, 4, 0, 0, 0, 1, pgpRSA}
	b = append(b, byte(keyBits>>8), byte(keyBits&0xff))
	b = append(b, key.N.FillBytes(make([]byte, keyBits/8))...)
	b = append(b, 0, 17, 1, 0, 1)
	binary.BigEndian.PutUint16(b[1:], uint16(len(b)-3))
	return b
}

// PlaceholderKey is what a GRUB has that was built for any owner, in the place of the key. No one can have its private
// half: it is a number that is no product of two secret primes.
func PlaceholderKey() []byte {
	n := new(big.Int).SetBytes(bytes.Repeat([]byte("no owner's key! "), keyBits/8/16))
	return GRUBKey(&rsa.PublicKey{N: n.SetBit(n, keyBits-1, 1), E: publicExponent})
}

// PutGRUBKey gives a GRUB that was built with PlaceholderKey the owner's key.
func PutGRUBKey(grub []byte, key *rsa.PublicKey) ([]byte, error) {
	if bytes.Count(grub, PlaceholderKey()) != 1 {
		return nil, errors.New("GRUB has no place for the owner's key")
	}
	return bytes.Replace(grub, PlaceholderKey(), GRUBKey(key), 1), nil
}

// issuer is the identity of a key: the end of the digest of its packet (RFC 4880, section 12.2).
func issuer(key *rsa.PublicKey) []byte {
	sum := sha1.Sum(GRUBKey(key))
	return sum[12:]
}

// SignFile gives the signature of a file, as GRUB checks it.
func (k Key) SignFile(content []byte) ([]byte, error) {
	hashed := []byte{4, 0, pgpRSA, pgpSHA256, 0, hashedSize, 5, 2, 0, 0, 0, 1} // of bytes; made in the first second of 1970
	sum := fileDigest(content, hashed)
	signature, err := rsa.SignPKCS1v15(rand.Reader, k.Private, crypto.SHA256, sum)
	if err != nil {
		return nil, fmt.Errorf("sign file: %w", err)
	}

	b := append([]byte{tagSignature, 0, 0}, hashed...)
	b = append(b, 0, unhashedSize, 9, 16)
	b = append(b, issuer(&k.Private.PublicKey)...)
	b = append(b, sum[:2]...)
	number := new(big.Int).SetBytes(signature)
	b = append(b, byte(number.BitLen()>>8), byte(number.BitLen()))
	b = append(b, number.Bytes()...)
	binary.BigEndian.PutUint16(b[1:], uint16(len(b)-3))
	return b, nil
}

// VerifyFile checks such a signature.
func VerifyFile(key *rsa.PublicKey, content, signature []byte) error {
	if len(signature) <= signatureHead+2 || len(signature) > signatureSize || signature[0] != tagSignature ||
		!bytes.Equal(signature[issuerAt:issuerAt+8], issuer(key)) {
		return errors.New("no signature by this key")
	}
	number := new(big.Int).SetBytes(signature[signatureHead+2:])
	sum := fileDigest(content, signature[3:3+6+hashedSize])
	return rsa.VerifyPKCS1v15(key, crypto.SHA256, sum, number.FillBytes(make([]byte, keyBits/8)))
}

// fileDigest is what is signed: the file, the signature's head, and a trailer (RFC 4880, section 5.2.4).
func fileDigest(content, hashed []byte) []byte {
	h := sha256.New()
	h.Write(content)
	h.Write(hashed)
	h.Write([]byte{4, 0xff, 0, 0, 0, byte(len(hashed))})
	return h.Sum(nil)
}
