/*
 * base/landlock.h - what the kernel has of Landlock.
 */
#pragma once

/* The version of its interface, from 1; negative errno where there is none, or it is switched off. */
long landlock_abi(void);
