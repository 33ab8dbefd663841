module fencepost/checks

go 1.24
