module toolhold

go 1.24
