/*
 * tests/fuzz/fuzz.h - a fuzz target: what libFuzzer (entry.c) and the replay over a corpus (vary.c) call.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Aborts where something is wrong. False: the reader refused the bytes. */
bool fuzz_one(const uint8_t *data, size_t size);
