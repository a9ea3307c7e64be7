package page

import (
	"context"
	"net/http"
)

// choiceField is the field of a form that has what was chosen, once for each.
const choiceField = "choice"

// choice is what a person chooses, one or several, before an action is confirmed.
type choice struct {
	legend  string // what is to be chosen
	isOne   bool   // and no more
	options func(p *picture, name string) []option
	// preview says what would become of what was chosen, and changes nothing. The error is for people.
	preview func(ctx context.Context, s *Server, p *picture, name string, chosen []string) (question, error)
}

// option is one thing to choose.
type option struct{ Value, Text string }

// chooseView asks what an action is to be about.
type chooseView struct {
	Path    string
	Back    string
	Effect  string
	Legend  string
	Kind    string // of the inputs
	Options []option
	Chosen  map[string]bool
	Error   string
}

// chosenBy is what was chosen by the form that a request sends.
func chosenBy(r *http.Request) []string {
	_ = r.ParseForm() // what cannot be read was not chosen
	return r.Form[choiceField]
}

// chooseFirst says that nothing was chosen, to whoever has sent the form.
func chooseFirst(r *http.Request) string {
	if !r.Form.Has(continueField) {
		return ""
	}
	return "Nothing was chosen. Choose at least one."
}

// continueField is the field of the form of choices that is there whatever was chosen.
const continueField = "continue"

// askToChoose asks what an action is to be about, with what was wrong with the last choice.
func (s *Server) askToChoose(w http.ResponseWriter, r *http.Request, of *session, a action, p *picture, problem string) {
	name, chosen := r.PathValue("name"), map[string]bool{}
	for _, value := range chosenBy(r) {
		chosen[value] = true
	}
	code := http.StatusOK
	if problem != "" {
		code = http.StatusUnprocessableEntity
	}
	kind := "checkbox"
	if a.choice.isOne {
		kind = "radio"
	}
	s.showQuestion(w, r, of, p, code, a.describe(name), "choose.html", chooseView{
		Path:    a.path(name),
		Back:    a.back(name),
		Effect:  a.effect,
		Legend:  a.choice.legend,
		Kind:    kind,
		Options: a.choice.options(p, name),
		Chosen:  chosen,
		Error:   problem,
	})
}
