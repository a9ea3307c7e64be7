package apply

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWhatIsSaidHasNoTokenAndNoAddressesOfObjects(t *testing.T) {
	assert.Equal(t, "exceeded with url: /v1/commands/?wait=true&agent_token=[redacted] (Caused by SSLError(1))",
		RedactIronicError("exceeded with url: /v1/commands/?wait=true&agent_token=ZoGD9c_-x (Caused by SSLError(1)) "))
	assert.Equal(t, "ConnectTimeoutError(<connection>, 'timed out')",
		RedactIronicError("ConnectTimeoutError(<urllib3.connection.HTTPConnection object at 0x7fc55a181590>, 'timed out')"))
	assert.Equal(t, "write_image failed on node 1. 10.0.0.2:8099/silent.raw cannot be reached: Connection to 10.0.0.2 timed out. (connect timeout=60)",
		RedactIronicError("write_image failed on node 1. HTTPConnectionPool(host='10.0.0.2', port=8099): Max retries exceeded with url: /silent.raw "+
			"(Caused by ConnectTimeoutError(<urllib3.connection.HTTPConnection object at 0x7fc55a181590>, 'Connection to 10.0.0.2 timed out. (connect timeout=60)'))"))
	assert.Equal(t, "10.0.0.2:80/x cannot be reached: Failed to establish a new connection: [Errno 111] Connection refused",
		RedactIronicError("HTTPConnectionPool(host='10.0.0.2', port=80): Max retries exceeded with url: /x "+
			"(Caused by NewConnectionError('<urllib3.connection.HTTPConnection object at 0x7fc55a181590>: Failed to establish a new connection: [Errno 111] Connection refused'))"))
	assert.Equal(t, "172.22.0.1:6385/b/[redacted]/v1/lookup cannot be reached: Connection refused",
		RedactIronicError("HTTPSConnectionPool(host='172.22.0.1', port=6385): Max retries exceeded with url: /b/"+strings.Repeat("aZ-_0", 8)+"abc/v1/lookup "+
			"(Caused by NewConnectionError('<urllib3.connection.HTTPSConnection object at 0x7fc55a181590>: Connection refused'))"))
	assert.Equal(t, "wrote <a>", RedactIronicError("wrote <a>"))
}
