package api

//go:generate go tool -modfile=../tools/go.mod controller-gen object paths=./...
//go:generate go tool -modfile=../tools/go.mod controller-gen crd:maxDescLen=260 paths=./... output:dir=crds
