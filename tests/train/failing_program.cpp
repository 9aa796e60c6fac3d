// SPDX-License-Identifier: Apache-2.0
// Throws an Error that ranks have not agreed on: `all` of them, or `one`.
#include <ostrakon/base/error.hpp>
#include <ostrakon/training.hpp>

namespace {

int fail(const ostrakon::Arguments& arguments) {
  ostrakon::Mesh mesh(MPI_COMM_WORLD);
  ostrakon::require(arguments.at(0) == "one" && mesh.world().rank() == 0, "bad samples");
  mesh.world().barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return ostrakon::run_program("failing_program", "usage: failing_program all|one\n", argc, argv,
                               fail);
}
