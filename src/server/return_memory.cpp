// SPDX-License-Identifier: Apache-2.0
#include "server/return_memory.h"

#include <cstdlib>  // defines __GLIBC__

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace heddle::server {

void return_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace heddle::server
