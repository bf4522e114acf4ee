// The spec lives with the public API; our own code includes it by its layer's name.
#pragma once

#include <caisson/spec.h>

#include "base/error.h"
