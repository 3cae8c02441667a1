/*
 * base/fuseabort.h - the end of a FUSE file system that nobody serves any more.
 */
#pragma once

/* Ends the connection of the file system that is mounted at @dir, whoever uses it: all that wait for an answer get an
 * error. The mount stays while it is in use. Asks nobody and waits for nobody. It takes the mount's owner; before Linux
 * 6.15 also a fusectl at /sys/fs/fuse/connections, or the administrator: without, nothing happens. */
void fuse_abort(const char *dir);
