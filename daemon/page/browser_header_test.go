package page

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// headerShape is how many lines the links to pages take, how high the header is, whether the name, the links and the
// log-out are beside each other, and whether anything of it is cut off or covers something.
const headerShape = `(() => {
  const rows = (all) => new Set(all.map((e) => Math.round(e.getBoundingClientRect().top))).size;
  const width = document.documentElement.clientWidth; // without the scroll bar
  const header = document.querySelector("header");
  const parts = [...header.children].map((e) => e.getBoundingClientRect());
  const fits = [...header.querySelectorAll("*")].every((e) => {
    const at = e.getBoundingClientRect();
    return at.left >= 0 && at.right <= width && e.scrollWidth <= e.clientWidth + 1 || getComputedStyle(e).display === "inline";
  });
  return {
    lines: rows([...header.querySelectorAll("nav a")]),
    height: header.offsetHeight,
    isOneRow: parts.every((p, i) => i === 0 || p.left >= parts[i - 1].right && p.top < parts[i - 1].bottom),
    fits: fits && document.documentElement.scrollWidth <= width,
  };
})()`

// TestABrowserShowsTheHeaderInOneRow: from 1024 pixels on, for an owner, who has the most links, also with long names; on
// a phone it wraps, and leaves most of the screen to the page.
func TestABrowserShowsTheHeaderInOneRow(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), browserHung)
	defer cancel()
	of := rack(10)
	s := newServerOffline(t, of)
	c := startChromium(ctx, t)
	url, _ := serveAlone(t, s)
	c.logIn(s, url, Owner, nil)

	for _, name := range []string{"lab", "firstlight-ab12", "rack-07-hall-2-frankfurt-west"} {
		of.doc.Name = name
		s.hub.forget()
		for _, width := range []int{1920, 1200, 1024, 768, 390, 320} {
			c.size(width, 900, "light")
			c.open(url + "/")
			shape := c.value(headerShape).(map[string]any)
			t.Log(name, width, shape)
			c.picture(fmt.Sprintf("header-%s-%d", name, width))
			assert.Equal(t, true, shape["fits"], "%s, %d wide", name, width)
			if width >= 1024 {
				assert.EqualValues(t, 1, shape["lines"], "%s, %d wide", name, width)
				assert.Equal(t, true, shape["isOneRow"], "%s, %d wide", name, width)
				assert.LessOrEqual(t, shape["height"], 80., "%s, %d wide", name, width)
			} else {
				assert.LessOrEqual(t, shape["height"], 225., "%s, %d wide: a quarter of the screen", name, width)
			}
		}
	}
}
