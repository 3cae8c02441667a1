/*
 * tests/unit/core/power_fx.h - the work of tests/power/work.h on a new store in @data, all in this process.
 */
#pragma once

#include "tests/power/work.h"

/* @log: with a journal, and fsyncs go to the log of the environment. */
void power_fx_work(const char *data, uint64_t seed, unsigned steps, bool log);
