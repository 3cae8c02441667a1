/*
 * store/early.h - the disk begins with what a transaction writes before its commit waits for it.
 *
 * A commit copies its pages into the page cache and then syncs the file: the disk sleeps during the first and the CPU during the second.
 * A thread asks the kernel meanwhile to begin writing what is there (sync_file_range(2), which neither waits nor takes away an error that
 * the sync has to tell). What is durable, and when, stays the sync's to say.
 */
#pragma once

struct early;

/* For the file @fd, which stays open until early_free. NULL where there is no memory or no thread: it only takes longer. */
struct early *early_new(int fd);
/* Around a commit of many bytes. Neither waits for the thread. */
void early_on(struct early *e);
void early_off(struct early *e);
void early_free(struct early *e); /* accepts NULL */
