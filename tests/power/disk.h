/*
 * tests/power/disk.h - from the log of record.h: what may be on the disk after a power loss.
 *
 * A disk is moved along the log with disk_step(); disk_image() then writes one possible outcome of a
 * loss at that point. What was synced is there. Of what was not, each 512-byte sector is as it was at
 * some moment since: none of the later writes, some or all of them, whatever their order; the size of
 * a file likewise, and bytes that it grew by without their writes are zeros or anything. Names come
 * and go with the sync of their directory: what was not synced is there up to some event or not.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/power/record.h"

struct disk;

/* The whole log, in memory; NULL: it cannot be read, or is damaged. */
struct disk *disk_new(const char *log);
void disk_free(struct disk *d);

size_t disk_events(const struct disk *d);
/* The record of event @i; the payload follows it. */
const struct power_rec *disk_event(const struct disk *d, size_t i);
static inline const char *disk_payload(const struct power_rec *r)
{
	return (const char *)(r + 1);
}
/* Apply the next event. */
void disk_step(struct disk *d);
size_t disk_at(const struct disk *d);

/* Make below @dir, which is there and empty, what is left of everything. -1: errno. */
int disk_image(const struct disk *d, const char *dir, uint64_t seed);
/* For a failure's message: what the last image was made of. */
const char *disk_told(const struct disk *d);
