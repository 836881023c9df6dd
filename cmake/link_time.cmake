# Link-time optimisation for libreprise_engine.so alone: a small segment's cost is calls between the layers (17 % of 50 small buffers).
#
# reprise_link_time_objects(target): its objects carry both forms, so that libreprise.so (whose hooks must stay exactly what -fno-builtin made
# of them) and the tests link the plain one, in no time. reprise_link_time(target): is linked from the other form.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT REPRISE_SANITIZE)
  set(REPRISE_LINK_TIME ON)
endif()
function(reprise_link_time_objects target)
  if(REPRISE_LINK_TIME)
    target_compile_options(${target} PRIVATE -flto=auto -ffat-lto-objects)
  endif()
endfunction()
function(reprise_link_time target)
  if(REPRISE_LINK_TIME)
    target_compile_options(${target} PRIVATE -flto=auto)
    target_link_options(${target} PRIVATE -flto=auto -O3)
  endif()
endfunction()
