//! Arguments that are objects with certain attributes.

/// Defines a structure that is read from an object by the names of its fields.
///
/// The code that PyO3 derives would keep these names in locks that are initialised on first use. If
/// the process forked meanwhile, the child would wait for such a lock forever.
macro_rules! fields {
    ($(#[$about:meta])* $name:ident { $($field:ident : $kind:ty),+ $(,)? }) => {
        $(#[$about])*
        pub(crate) struct $name {
            $($field: $kind,)+
        }

        impl<'py> FromPyObject<'_, 'py> for $name {
            type Error = PyErr;

            fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<$name> {
                Ok($name {
                    $($field: object.getattr(stringify!($field))?.extract()?,)+
                })
            }
        }
    };
}
pub(super) use fields;
