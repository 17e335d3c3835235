package layout_test

import (
	"fmt"
	"go/ast"
	"slices"
	"testing"
)

// riddles are names that a stranger has to look up, and what to write. A name may be a good one of another kind, or in
// another folder.
var riddles = map[string]string{
	"Everyday": "IsTransient", "ErrAnew": "ErrDecideAgain", "notInVain": "stopUnkept", "LeftAlone": "IsIgnored", "telling": "objectMetrics",
	"Doubt": "Repeat, CheckIssuer, SetUnsure", "internal/engine doubt": "repeat", "doubted": "stale", "believed": "certain", "Believed": "Certain", "internal/app calm": "transientAsInfo",
	"fly": "send", "flying": "running", "Flying": "Running", "land": "finish, takeOutcome", "landed": "finished", "Landed": "Finished", "inAir": "running",
	"Belied": "ContradictsSelfCheck", "Unvouched": "Untrusted", "unvouched": "untrusted", "Nowhere": "what is missing", "viewed": "propagationKey",
	"solve1": "callSolver", "signAfar": "callSigner", "StandingOf": "RetryKey", "closeRanks": "compact", "Mended": "CredentialChanged", "nudge": "wakeUp",
	"Turn": "Exact, AfterExactly", "Quiet": "HoldValidations", "LeaveAlone": "ExtendPark", "goesBy": "acceptsKey", "lookAfter": "checkUnwatched",
	"Tally": "ChallengeCounts", "Head": "StateAndCause", "internal/cause Says": "Meaning", "internal/clientside/explain Says": "OwnReason", "failureOf": "faultOf, classify, causeOf", "robsIssuer": "takesIssuerSecret",
	"overdrawn": "budgetExceeded", "heed": "applyRenewalInfo", "Spoils": "ForbidsKey", "NamesNobody": "HasNoSubjectOrNames", "Rivals": "PossibleOwners", "internal/kube/informers Away": "IsStripped",
	"hire": "acquire", "dismiss": "release", "victims": "chooseParked, chosen", "concerned": "affectedBy", "func inTheWay": "blockedBy", "outlasts": "supersedes",
	"func settle": "what it does: only what changes no more has settled", "unsettled": "inOrder", "layToRest": "runAtRest", "climb": "branches",
	"internal/engine Take": "TakeOutcome", "internal/engine Last": "LastOutcome", "internal/engine type account": "passLog", "internal/clientside/explain World": "Cluster",
	"internal/machine/account Asked": "ParkedFor", "internal/machine/account Deny": "NoteUnknownKey", "internal/machine/acmeflow type Account": "AccountState",
	"internal/signer/venafi type account": "session", "internal/solver/dns01/provider/acmedns type account": "registration",
}

// TestIdentifiers: no declaration has one of the riddles for a name.
func TestIdentifiers(t *testing.T) {
	for dir, files := range readSources(t) {
		for _, problem := range checkIdentifiers(dir, files) {
			t.Error(problem)
		}
	}
}

// TestIdentifiersBite: a riddle is found as each kind of name, and in its folder alone.
func TestIdentifiersBite(t *testing.T) {
	const text = "package a\n\ntype Tally struct {\n\tTurn, Take int\n}\n\nconst fly = 1\n\nfunc (t Tally) settle() {}\n\ntype i interface {\n\tSays()\n}\n"
	for dir, want := range map[string]int{"internal/engine": 5, "internal/clientside/explain": 5, "internal/fairshare": 4} {
		if found := checkIdentifiers(dir, []source{parse(t, dir+"/a.go", []byte(text))}); len(found) != want {
			t.Errorf("%s: %d are found, want %d: %q", dir, len(found), want, found)
		}
	}
}

// checkIdentifiers finds the riddles among the names that the files of a package, without its tests, declare.
func checkIdentifiers(dir string, files []source) (problems []string) {
	for _, s := range files {
		if s.test {
			continue
		}
		for name, kind := range declaredNames(s.file) {
			for _, riddle := range []string{name.Name, kind + name.Name, dir + " " + name.Name, dir + " " + kind + name.Name} {
				if instead, is := riddles[riddle]; is {
					at := s.fset.Position(name.Pos())
					problems = append(problems, fmt.Sprintf("%s:%d: %s says too little, see internal/layout/identifiers_test.go: %s", s.path, at.Line, name.Name, instead))
				}
			}
		}
	}
	slices.Sort(problems)
	return problems
}

// declaredNames are the functions, methods, types, fields, constants and variables that a file declares, each with its
// kind.
func declaredNames(file *ast.File) map[*ast.Ident]string {
	all := map[*ast.Ident]string{}
	add := func(kind string, names ...*ast.Ident) {
		for _, name := range names {
			all[name] = kind
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			add("func ", n.Name)
		case *ast.TypeSpec:
			add("type ", n.Name)
		case *ast.Field:
			add("field ", n.Names...)
		case *ast.ValueSpec:
			add("value ", n.Names...)
		}
		return true
	})
	return all
}
