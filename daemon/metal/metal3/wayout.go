package metal3

import (
	"fmt"
	"strings"

	"firstlight.dev/firstlight/assets/site"
)

// wayOutPath is run by cloud-init at every boot (cloud-init, "Scripts per boot").
const wayOutPath = "/var/lib/cloud/scripts/per-boot/firstlight-way-out"

// wayOutScript gives a node a default route and resolvers. A gateway counts once it is on a link: a node that has no
// NIC on that network keeps what DHCP gave it.
const wayOutScript = `#!/bin/sh
# networks.baremetal of site.yaml, for a node whose links it does not describe
gateway=%s
dns="%s"
target=${gateway:-${dns%%%% *}}
for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  way=$(ip route get "$target" 2>/dev/null | head -n 1)
  case "${gateway:+gateway}:$way" in
    *: | gateway:*" via "*) sleep 1; continue ;;
  esac
  device=$(printf '%%s\n' "$way" | sed 's/.* dev \([^ ]*\).*/\1/')
  test -z "$gateway" || ip route replace default via "$gateway" dev "$device" metric 10
  test -n "$dns" || exit 0
  if resolvectl dns "$device" $dns 2>/dev/null; then
    resolvectl domain "$device" '~.'
  else
    for server in $dns; do echo "nameserver $server"; done >"${RESOLV_CONF:-/etc/resolv.conf}"
  fi
  exit 0
done
`

// wayOut is the script for a node, "" if it needs none: links of the site say it themselves, and without a gateway
// and resolvers of baremetal there is nothing to say.
func wayOut(s *site.Site, n site.Node) string {
	b := s.Networks.Baremetal
	if len(n.Links) > 0 || b == nil || !b.Gateway.IsValid() && len(b.DNS) == 0 {
		return ""
	}

	gateway := ""
	if b.Gateway.IsValid() {
		gateway = b.Gateway.String()
	}

	var dns []string
	for _, a := range b.DNS {
		dns = append(dns, a.String())
	}

	return fmt.Sprintf(wayOutScript, gateway, strings.Join(dns, " "))
}
