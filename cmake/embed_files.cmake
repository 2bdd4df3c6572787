# SPDX-License-Identifier: Apache-2.0
# cmake -D FOLDER=... -D MARKED=... -D OUTPUT=... -P embed_files.cmake
# Writes the files of FOLDER, and MARKED as marked.js, into a C++ source that defines dashboard_files() (src/server/admin/dashboard.h).
file(GLOB names RELATIVE ${FOLDER} ${FOLDER}/*.html ${FOLDER}/*.css ${FOLDER}/*.js ${FOLDER}/*.svg)
list(APPEND names marked.js)
list(SORT names)
set(arrays "")
set(table "")
set(index 0)
foreach(name ${names})
  if(name STREQUAL marked.js)
    file(READ ${MARKED} bytes HEX)
  else()
    file(READ ${FOLDER}/${name} bytes HEX)
  endif()
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(REGEX REPLACE "(....................................................................................................)"
    "\\1\n" bytes "${bytes}")
  string(APPEND arrays "const unsigned char kFile${index}[] = {\n${bytes}};\n")
  string(APPEND table "      {\"${name}\", view(kFile${index})},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUTPUT} "// Made by cmake/embed_files.cmake.
#include \"server/admin/dashboard.h\"

namespace heddle::server {
namespace {

${arrays}
template <size_t kSize>
std::string_view view(const unsigned char (&bytes)[kSize]) {
  return {reinterpret_cast<const char*>(bytes), kSize};
}

}  // namespace

std::span<const DashboardFile> dashboard_files() {
  static const DashboardFile kFiles[] = {
${table}  };
  return kFiles;
}

}  // namespace heddle::server
")
