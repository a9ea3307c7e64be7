package fact

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWhatIsSaidHasNoTokenAndNoAddressesOfObjects(t *testing.T) {
	assert.Equal(t, "Max retries exceeded with url: /v1/commands/?wait=true&agent_token=[redacted] (Caused by SSLError(1))",
		Said("Max retries exceeded with url: /v1/commands/?wait=true&agent_token=ZoGD9c_-x (Caused by SSLError(1)) "))
	assert.Equal(t, "ConnectTimeoutError(<connection>, 'timed out')",
		Said("ConnectTimeoutError(<urllib3.connection.HTTPConnection object at 0x7fc55a181590>, 'timed out')"))
	assert.Equal(t, "wrote <a>", Said("wrote <a>"))
}
