/*
 * tests/unit/store/flip_read.h - everything that can be read of the store of sample.h, as lines.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/* With @learn the store is sound: what a digest gives here it must give ever after, else a line says "WRONG". */
void flip_read(const char *dir, FILE *out, bool learn);
