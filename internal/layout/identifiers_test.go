package layout_test

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// riddles are names that a stranger has to look up, and what to write. A name with a folder is one in that folder: it
// may be a good one elsewhere.
var riddles = map[string]string{
	"Everyday": "IsTransient", "ErrAnew": "ErrDecideAgain", "notInVain": "stopUnkept", "LeftAlone": "IsIgnored", "telling": "objectMetrics",
	"Doubt": "Repeat, CheckIssuer, SetUnsure", "doubt": "repeat", "doubted": "stale", "believed": "certain", "Believed": "Certain", "calm": "transientAsInfo",
	"fly": "send", "flying": "running", "Flying": "Running", "land": "finish, takeOutcome", "landed": "finished", "Landed": "Finished", "inAir": "running",
	"Belied": "ContradictsSelfCheck", "Unvouched": "Untrusted", "unvouched": "untrusted", "Nowhere": "what is missing", "viewed": "propagationKey",
	"solve1": "callSolver", "signAfar": "callSigner", "StandingOf": "IssuerState", "closeRanks": "compact", "Mended": "CredentialChanged", "nudge": "wakeUp",
	"Turn": "Exact, AfterExactly", "Quiet": "HoldValidations", "LeaveAlone": "ExtendPark", "goesBy": "acceptsKey", "lookAfter": "finishValidations",
	"Tally": "ChallengeCounts", "Head": "StateAndCause", "Says": "Meaning, OwnReason", "failureOf": "faultOf, classify, causeOf", "robsIssuer": "takesIssuerSecret",
	"overdrawn": "budgetExceeded", "heed": "applyRenewalInfo", "Spoils": "ForbidsKey", "NamesNobody": "HasNoUser", "Rivals": "PossibleOwners", "Away": "IsStripped",
	"hire": "startWorker", "dismiss": "stopWorker", "victims": "chooseParked", "concerned": "affectedBy", "inTheWay": "blockedBy", "outlasts": "mayOutlive",
	"settle": "what it does: only what changes no more has settled", "unsettled": "inOrder", "layToRest": "runAtRest", "climb": "branches",
	"internal/engine Take": "TakeOutcome", "internal/engine Last": "LastOutcome", "internal/engine account": "logState", "internal/explain World": "Cluster",
	"internal/machine/account Asked": "ParkedFor", "internal/machine/account Deny": "RejectKey", "internal/machine/acmeflow Account": "AccountState",
	"internal/signer/venafi account": "session", "internal/solver/dns01/provider/acmedns account": "registration",
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
	for dir, want := range map[string]int{"internal/engine": 6, "internal/share": 5} {
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
		for _, name := range declaredNames(s.file) {
			for _, riddle := range []string{name.Name, dir + " " + name.Name} {
				if instead, is := riddles[riddle]; is {
					at := s.fset.Position(name.Pos())
					problems = append(problems, fmt.Sprintf("%s:%d: %s says too little, see internal/layout/identifiers_test.go: %s", s.path, at.Line, name.Name, instead))
				}
			}
		}
	}
	slices.SortFunc(problems, strings.Compare)
	return problems
}

// declaredNames are the functions, methods, types, fields, constants and variables that a file declares.
func declaredNames(file *ast.File) (all []*ast.Ident) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			all = append(all, n.Name)
		case *ast.TypeSpec:
			all = append(all, n.Name)
		case *ast.StructType:
			for _, f := range n.Fields.List {
				all = append(all, f.Names...)
			}
		case *ast.InterfaceType:
			for _, f := range n.Methods.List {
				all = append(all, f.Names...)
			}
		case *ast.ValueSpec:
			all = append(all, n.Names...)
		}
		return true
	})
	return all
}
