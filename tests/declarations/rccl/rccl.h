/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of RCCL that Ostrakon calls, to compile without it: those of NCCL. */
#ifndef OSTRAKON_DECLARATIONS_RCCL_H
#define OSTRAKON_DECLARATIONS_RCCL_H

#include <fake_device/nccl.h>

#endif
