// The Python binding of a mesh.
#pragma once

#include <nanobind/nanobind.h>

namespace lioncub {

void add_mesh(nanobind::module_ &m);

}  // namespace lioncub
