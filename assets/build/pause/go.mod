module firstlight.dev/firstlight/assets/build/pause

go 1.26.0
