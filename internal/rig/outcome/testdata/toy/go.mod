module chancery.dev/toy

go 1.26
