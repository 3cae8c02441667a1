/*
 * tests/fuzz/fuzz.h - the entry point that libFuzzer and tests/fuzz/replay.c call.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
