/*
 * tests/unit/core/power_fx.h - the work of tests/power/work.h on a new store in @data, all in this process.
 */
#pragma once

#include "tests/power/work.h"

void power_fx_work(const char *data, uint64_t seed, unsigned steps);
