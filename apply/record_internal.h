/*
 * apply/record_internal.h - the frame and the kinds of records: record.c writes them, record_read.c reads them.
 */
#pragma once

#include "apply/record.h"

#define RECORD_VERSION 1
#define HEAD           12

enum record_kind {
	REC_HEAD = 1,
	REC_STEP,
	REC_STAGED,
	REC_AFTER,
	REC_DONE,
	REC_MARK,
};

/* Of a record's bytes: against torn writes, not against forgers. */
uint64_t record_sum(const uint8_t *p, size_t n);
