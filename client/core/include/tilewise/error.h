// What the public API throws: ArrayError.
#pragma once
#include <tilewise/base/array_error.h>
