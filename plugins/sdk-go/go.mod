module berth

go 1.24
