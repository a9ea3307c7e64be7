package engine

import (
	"context"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

// exprCost bounds one evaluation, in units of CEL: about a tenth of a second.
const exprCost = 1_000_000

// CompileExpr reads an expression over self.
func CompileExpr(text string) (cel.Program, error) {
	env, err := cel.NewEnv(cel.Variable("self", cel.DynType), ext.Strings())
	if err != nil {
		return nil, err
	}

	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	if !ast.OutputType().IsExactType(cel.BoolType) && !ast.OutputType().IsExactType(cel.DynType) {
		return nil, fmt.Errorf("it is a %s, not true or false", ast.OutputType())
	}

	return env.Program(ast, cel.CostLimit(exprCost), cel.InterruptCheckFrequency(1000))
}

// CheckSyntax is nil if all expressions can be read: whatever is wrong with them is said before anything is applied.
func CheckSyntax(all []v1alpha1.HealthExpr) error {
	for i, e := range all {
		if _, err := CompileExpr(e.Expr); err != nil {
			return newFault(
				v1alpha1.PhaseRefused, plan.ReasonSourceRefused, "spec.healthExpr[%d].expr cannot be read: %v", i, err,
			)
		}
	}
	return nil
}

// CheckExprs is nil if all expressions hold, and what the first one that does not says.
func (t *Target) CheckExprs(ctx context.Context, all []v1alpha1.HealthExpr) (*plan.Verdict, error) {
	for _, e := range all {
		program, err := CompileExpr(e.Expr)
		if err != nil {
			return nil, err
		}

		objects, err := t.find(ctx, e)
		if err != nil {
			return nil, err
		}
		if len(objects) == 0 {
			return notMet(e, fmt.Sprintf("there is no %s %s", e.Kind, e.Name)), nil
		}
		for _, o := range objects {
			out, _, err := program.ContextEval(ctx, map[string]any{"self": o.Object})
			if err != nil {
				return notMet(e, fmt.Sprintf("%s: %v", describe(&o), err)), nil
			}
			if out.Value() != true {
				return notMet(e, fmt.Sprintf("%s: %s does not hold", describe(&o), e.Expr)), nil
			}
		}
	}

	return nil, nil
}

func notMet(e v1alpha1.HealthExpr, text string) *plan.Verdict {
	if e.Message != "" {
		text = e.Message + " (" + text + ")"
	}
	return &plan.Verdict{Phase: v1alpha1.PhaseHealth, Reason: plan.ReasonExpression, Message: text}
}

// find is the objects that an expression is about.
func (t *Target) find(ctx context.Context, e v1alpha1.HealthExpr) ([]unstructured.Unstructured, error) {
	if e.Name != "" {
		o := entry{e.APIVersion, e.Kind, e.Namespace, e.Name}.object()
		err := t.client.Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			return nil, nil
		}
		return []unstructured.Unstructured{*o}, err
	}

	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(e.APIVersion)
	list.SetKind(e.Kind + "List")
	err := t.client.List(ctx, list, client.InNamespace(e.Namespace), client.Limit(1000))
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	return list.Items, err
}
