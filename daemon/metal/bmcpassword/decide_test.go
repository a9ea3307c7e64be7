package bmcpassword

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/daemon/appliance/vault"
)

func TestTheNextStepOfAnAccount(t *testing.T) {
	minted := vault.BMCAccount{Next: "n"}
	asked := vault.BMCAccount{Next: "n", Asked: true}
	switched := vault.BMCAccount{Present: "n", Former: "p"}
	for name, c := range map[string]struct {
		view View
		want Step
	}{
		"nothing is asked":                              {View{MayTry: true}, StepNone},
		"the next is minted":                            {View{Account: minted, MayTry: true}, StepAsk},
		"minted, Ironic works on the host":              {View{Account: minted, MayTry: true, Busy: true}, StepWait},
		"minted, there were tries enough":               {View{Account: minted}, StepWait},
		"minted, and the site was edited":               {View{Account: minted, MayTry: true, Edited: true}, StepDrop},
		"asked, cut before the answer":                  {View{Account: asked, MayTry: true}, StepTryNext},
		"asked, Ironic works on the host":               {View{Account: asked, MayTry: true, Busy: true}, StepTryNext},
		"asked, there were tries enough":                {View{Account: asked}, StepWait},
		"it takes the next":                             {View{Account: asked, Accepts: AcceptsNext}, StepSwitch},
		"it takes the next, the site was edited":        {View{Account: asked, Accepts: AcceptsNext, Edited: true}, StepSwitch},
		"it does not take the next":                     {View{Account: asked, Accepts: AcceptsNotNext, MayTry: true}, StepTryPresent},
		"not the next, there were tries enough":         {View{Account: asked, Accepts: AcceptsNotNext}, StepWait},
		"not the present":                               {View{Account: asked, Accepts: AcceptsNotPresent, MayTry: true}, StepTryNext},
		"it takes the present":                          {View{Account: asked, Accepts: AcceptsPresent, MayTry: true}, StepAsk},
		"the present, Ironic works on the host":         {View{Account: asked, Accepts: AcceptsPresent, MayTry: true, Busy: true}, StepWait},
		"the present, there were tries enough":          {View{Account: asked, Accepts: AcceptsPresent}, StepWait},
		"the present, the site was edited":              {View{Account: asked, Accepts: AcceptsPresent, Edited: true}, StepDrop},
		"not the next, the site was edited":             {View{Account: asked, Accepts: AcceptsNotNext, Edited: true, MayTry: true}, StepTryPresent},
		"it takes neither":                              {View{Account: asked, Accepts: AcceptsNeither, MayTry: true}, StepWait},
		"neither, the site was edited":                  {View{Account: asked, Accepts: AcceptsNeither, Edited: true, MayTry: true}, StepWait},
		"it has refused":                                {View{Account: asked, Refusal: "policy", MayTry: true}, StepTryPresent},
		"it has refused, and takes the present":         {View{Account: asked, Refusal: "policy", Accepts: AcceptsPresent}, StepDrop},
		"it has refused, and does not take the present": {View{Account: asked, Refusal: "policy", Accepts: AcceptsNotPresent, MayTry: true}, StepTryNext},
		"it has refused, and takes the next":            {View{Account: asked, Refusal: "policy", Accepts: AcceptsNext}, StepSwitch},
		"switched, the Secret says the former":          {View{Account: switched, Given: GivenOther}, StepPass},
		"switched, the Secret is not known":             {View{Account: switched}, StepWait},
		"switched, the Secret says it":                  {View{Account: switched, Given: GivenPresent}, StepForget},
	} {
		assert.Equal(t, c.want, Decide(c.view), name)
	}
}

// TestNoPasswordIsForgottenThatABMCMayHave looks at every view there can be.
func TestNoPasswordIsForgottenThatABMCMayHave(t *testing.T) {
	both := []bool{false, true}
	for _, isAsked := range both {
		for _, edited := range both {
			for _, busy := range both {
				for _, mayTry := range both {
					for _, refusal := range []string{"", "policy"} {
						for _, accepts := range []Accepts{AcceptsUnknown, AcceptsNext, AcceptsPresent, AcceptsNotNext, AcceptsNotPresent, AcceptsNeither} {
							v := View{vault.BMCAccount{Next: "n", Asked: isAsked}, accepts, GivenUnknown, edited, busy, mayTry, refusal}
							switch step := Decide(v); step {
							case StepDrop:
								assert.True(t, !isAsked || accepts == AcceptsPresent, "%+v", v)
							case StepSwitch:
								assert.Equal(t, AcceptsNext, accepts, "%+v", v)
							case StepAsk, StepTryNext, StepTryPresent:
								assert.True(t, mayTry, "%+v", v)
								assert.False(t, step == StepAsk && (busy || edited), "%+v", v)
							}
						}
					}
				}
			}
		}
	}
}
