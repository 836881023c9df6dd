# Private copies of the libraries that we open in other people's processes. The loader identifies libraries by SONAME even under
# RTLD_LOCAL: a libtbb.so.12 or libstdc++.so.6 that we bring in first would make a job's newer one fail to load. So we carry copies with
# SONAMEs of our own, in reprise-private/ beside our libraries, found by DT_RPATH $ORIGIN.
find_program(REPRISE_PATCHELF patchelf REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)

set(REPRISE_PRIVATE_DIR ${CMAKE_BINARY_DIR}/reprise-private)
# What refers to the left must be made to refer to the right.
set(REPRISE_PRIVATE_RENAMES libtbb.so.12=libreprise_tbb.so.12 libstdc++.so.6=libreprise_stdcxx.so.6
                            libmimalloc.so.2=libreprise_mimalloc.so.2 libmimalloc.so.2.0=libreprise_mimalloc.so.2)
set(_reprise_make_private ${CMAKE_CURRENT_LIST_DIR}/make_private_library.py)
set(_reprise_private_replace ${REPRISE_PRIVATE_RENAMES})
list(TRANSFORM _reprise_private_replace PREPEND "--replace=")

# reprise_private_library(soname private_name): target reprise_private_<private_name> makes reprise-private/<private_name> from the library
# that the C++ compiler links as <soname>.
function(reprise_private_library soname private_name)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${soname} OUTPUT_VARIABLE source OUTPUT_STRIP_TRAILING_WHITESPACE)
  get_filename_component(source "${source}" REALPATH)
  if(NOT EXISTS "${source}")
    message(FATAL_ERROR "${soname}: not found by ${CMAKE_CXX_COMPILER}; install its runtime package (README, requirements)")
  endif()
  set(output ${REPRISE_PRIVATE_DIR}/${private_name})
  add_custom_command(OUTPUT ${output}
    COMMAND ${Python3_EXECUTABLE} ${_reprise_make_private} ${REPRISE_PATCHELF} ${source} ${output} ${_reprise_private_replace} --rpath $ORIGIN
    DEPENDS ${source} ${_reprise_make_private} COMMENT "Private copy ${private_name}" VERBATIM)
  string(MAKE_C_IDENTIFIER ${private_name} id)
  add_custom_target(reprise_private_${id} DEPENDS ${output})
  set_property(GLOBAL APPEND PROPERTY REPRISE_PRIVATE_TARGETS reprise_private_${id})
  install(PROGRAMS ${output} DESTINATION ${CMAKE_INSTALL_LIBDIR}/reprise/reprise-private)
endfunction()

# reprise_use_private_libraries(target): the shared library `target` refers to the private copies, found beside it in reprise-private/.
# Its own unique symbols are made ordinary too.
function(reprise_use_private_libraries target)
  get_property(copies GLOBAL PROPERTY REPRISE_PRIVATE_TARGETS)
  add_dependencies(${target} ${copies})
  target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-fno-gnu-unique>)
  # The rpath stands already when it is linked, so that an install step needs no relinking.
  set_target_properties(${target} PROPERTIES SKIP_BUILD_RPATH ON INSTALL_RPATH "" SKIP_INSTALL_RPATH ON)
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND ${Python3_EXECUTABLE} ${_reprise_make_private} ${REPRISE_PATCHELF} $<TARGET_FILE:${target}> $<TARGET_FILE:${target}>
            ${_reprise_private_replace} --rpath $ORIGIN/reprise-private --keep-soname
    VERBATIM)
endfunction()

if(NOT TARGET reprise_private_libreprise_tbb_so_12)
  reprise_private_library(libstdc++.so.6 libreprise_stdcxx.so.6)
  reprise_private_library(libtbb.so.12 libreprise_tbb.so.12)
  reprise_private_library(libmimalloc.so.2 libreprise_mimalloc.so.2)
endif()
